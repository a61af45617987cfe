// Keys: none where somebody types, or with a modifier.
{
  const moves = { j: 1, k: -1 };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea, dialog[open], [contenteditable]")) return;
    const rows = [...document.querySelectorAll("a[data-row]")];
    const at = rows.findIndex((row) => row.closest("tr").contains(document.activeElement));
    const turn = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
    if (event.key in moves && rows.length) rows.at(Math.min(Math.max(at + moves[event.key], 0), rows.length - 1)).focus();
    else if (event.key === "/") document.querySelector("input[type=search]")?.focus();
    else if (event.key === "?") document.getElementById("keys")?.showModal();
    else if (turn && !event.shiftKey) document.querySelector(`a[data-turn][rel=${turn}]`)?.click();
    else return;
    if (!turn) event.preventDefault();
  });
}
