// Rendered or raw texts, as the reader chose last. The choice is an attribute of the page: style rules that would look
// for the switch in long pages are slow.
{
  const kept = ofReader.get("texts") === "raw" ? "raw" : "rendered";
  document.documentElement.dataset.texts = kept;
  document.addEventListener("DOMContentLoaded", () => {
    const raw = document.getElementById("raw-texts");
    if (!raw) return;
    raw.checked = kept === "raw";
    raw.addEventListener("change", () => {
      const chosen = raw.checked ? "raw" : "rendered";
      document.documentElement.dataset.texts = chosen;
      ofReader.set("texts", chosen);
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "r" || event.ctrlKey || event.metaKey || event.altKey) return;
      if (!event.target.closest("input:not([type=checkbox]), select, textarea, dialog[open], [contenteditable]")) raw.click();
    });
  });
}
