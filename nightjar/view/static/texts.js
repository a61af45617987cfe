// Rendered or raw texts, as the reader chose last.
const raw = document.getElementById("raw-texts");
if (raw) {
  try {
    raw.checked = localStorage.rawTexts === "1";
  } catch {} // where storage is not permitted
  raw.addEventListener("change", () => {
    try {
      localStorage.rawTexts = raw.checked ? "1" : "0";
    } catch {}
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "r" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (!event.target.closest("input:not([type=checkbox]), select, textarea, dialog[open], [contenteditable]")) raw.click();
  });
}
