// The chosen columns of a table: they act at once, and they are kept for pages whose address has no choice.
for (const choice of document.querySelectorAll("details[data-columns]")) {
  const key = `columns of ${choice.dataset.columns}`;
  const boxes = [...choice.querySelectorAll("input[type=checkbox]")];
  const address = new URL(location);
  if (!address.searchParams.has("columns") && localStorage[key]) {
    for (const name of JSON.parse(localStorage[key])) {
      if (boxes.some((box) => box.value === name)) address.searchParams.append("columns", name);
    }
    if (address.searchParams.has("columns")) location.replace(address);
  }
  choice.addEventListener("change", () => {
    localStorage[key] = JSON.stringify(boxes.filter((box) => box.checked).map((box) => box.value));
    sessionStorage.choosing = document.activeElement.value;
    boxes[0].form.requestSubmit();
  });
  choice.querySelector("[data-usual]").addEventListener("click", () => delete localStorage[key]);
  choice.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !choice.open) return;
    choice.open = false;
    choice.querySelector("summary").focus();
  });
  // The page after a choice: the list stays open, and the focus stays where it was.
  if (sessionStorage.choosing) {
    choice.open = true;
    boxes.find((box) => box.value === sessionStorage.choosing)?.focus();
    delete sessionStorage.choosing;
  }
}
