// The chosen columns of a table: they act at once, and they are kept for pages whose address has no choice.
for (const choice of document.querySelectorAll("details[data-columns]")) {
  const form = choice.closest("form"), key = `columns of ${choice.dataset.columns}`;
  const boxes = [...choice.querySelectorAll("input[type=checkbox]")];
  const chosen = () => boxes.filter((box) => box.checked).map((box) => box.value);
  const address = new URL(location);
  if (!address.searchParams.has("columns") && localStorage[key]) {
    const kept = JSON.parse(localStorage[key]);
    if (kept.some((name) => boxes.some((box) => box.value === name))) {
      for (const name of kept) address.searchParams.append("columns", name);
      location.replace(address);
    }
  }
  choice.addEventListener("change", () => {
    localStorage[key] = JSON.stringify(chosen());
    sessionStorage.chosen = choice.dataset.columns;
    form.requestSubmit();
  });
  choice.querySelector("button")?.addEventListener("click", () => {
    delete localStorage[key];
    for (const box of boxes) box.checked = false;
    form.requestSubmit();
  });
  if (sessionStorage.chosen === choice.dataset.columns) {
    delete sessionStorage.chosen;
    choice.open = true;
    choice.querySelector("summary").focus();
  }
  choice.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !choice.open) return;
    choice.open = false;
    choice.querySelector("summary").focus();
  });
}
