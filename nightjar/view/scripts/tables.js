// The chosen columns of a table: they act at once, and they are kept for pages whose address has no choice.
for (const choice of document.querySelectorAll("details[data-columns]")) {
  const key = `columns of ${choice.dataset.columns}`;
  const boxes = [...choice.querySelectorAll("input[type=checkbox]")];
  const known = (names) => names.filter((name) => boxes.some((box) => box.value === name));
  const addressWith = (names) => {
    const address = new URL(location);
    address.searchParams.delete("columns");
    for (const name of names) address.searchParams.append("columns", name);
    return address;
  };
  const kept = known(ofReader.get(key) ?? []);
  if (kept.length && !new URL(location).searchParams.has("columns")) location.replace(addressWith(kept));
  choice.addEventListener("change", (event) => {
    const names = boxes.filter((box) => box.checked).map((box) => box.value);
    ofReader.set(key, names);
    ofTab.set("choosing", event.target.value);
    location.assign(addressWith(names));
  });
  choice.querySelector("[data-usual]").addEventListener("click", (event) => {
    ofReader.set(key, []);
    event.preventDefault();
    location.assign(addressWith([]));
  });
  choice.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !choice.open) return;
    choice.open = false;
    choice.querySelector("summary").focus();
  });
  // The page after a choice: the list stays open, and the focus stays where it was.
  const choosing = ofTab.get("choosing");
  if (choosing) {
    choice.open = true;
    boxes.find((box) => box.value === choosing)?.focus();
    ofTab.set("choosing", null);
  }
}
