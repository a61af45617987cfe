// Runs that are ticked stay ticked on other pages of the list, until they are compared.
{
  const comparing = document.querySelector("form[action='/compare']:has([name=ticked])");
  const boxes = () => [...document.querySelectorAll("input[type=checkbox][name=ticked]")];
  const kept = () => ofTab.get("ticked") ?? [];
  if (comparing) {
    const others = () => kept().filter((run) => !boxes().some((box) => box.value === run));
    const tell = () => {
      const count = others().length;
      comparing.querySelector("#ticked")?.replaceChildren(count ? `and ${count} on other pages` : "");
    };
    for (const box of boxes()) box.checked = kept().includes(box.value);
    tell();
    document.addEventListener("change", (event) => {
      if (!boxes().includes(event.target)) return;
      ofTab.set("ticked", [...others(), ...boxes().filter((box) => box.checked).map((box) => box.value)]);
    });
    document.addEventListener("formdata", (event) => {
      if (event.target.matches("form[action='/compare']")) for (const run of others()) event.formData.append("ticked", run);
    });
    document.addEventListener("submit", (event) => {
      if (event.target.matches("form[action='/compare']")) setTimeout(() => ofTab.set("ticked", []));
    });
  }
}
