// What links and forms cannot do: choices that act at once.
{
  for (const choice of document.querySelectorAll("form.filters[method=get] select")) {
    choice.addEventListener("change", () => choice.form.requestSubmit());
  }

  // What is found, as one types; what was typed before and is answered late is left out.
  const typed = document.getElementById("found") && document.querySelector("form.filters input[type=search]");
  let waiting, asked;
  async function find() {
    const address = new URL(location.pathname, location);
    address.search = new URLSearchParams([...new FormData(typed.form)].filter(([, value]) => value));
    asked = address.href;
    const answer = await fetch(address).catch(() => null);
    const page = new DOMParser().parseFromString(answer?.ok ? await answer.text() : "", "text/html");
    const found = page.getElementById("found");
    if (!found || asked !== address.href) return;
    document.getElementById("found").replaceWith(found);
    history.replaceState(null, "", address);
  }
  typed?.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(find, 300);
  });

  for (const text of document.querySelectorAll("form textarea[name=q]")) {
    text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) text.form.requestSubmit();
    });
  }
}
