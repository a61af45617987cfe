// What links and forms cannot do: choices that act at once.
for (const choice of document.querySelectorAll("form.filters[method=get] select")) {
  choice.addEventListener("change", () => choice.form.requestSubmit());
}

// Keys: none where somebody types, or with a modifier.
const moves = { j: 1, k: -1 };
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea, dialog, [contenteditable]")) return;
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

for (const text of document.querySelectorAll("form textarea[name=q]")) {
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) text.form.requestSubmit();
  });
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });
}

// What is under way is asked for every second while the page is seen; when a run has ended, the page is loaded anew.
const live = document.querySelector("[data-live]");
const shown = () => [...live.querySelectorAll("[data-run]")].map((each) => each.dataset.run);
async function follow() {
  if (!document.hidden) {
    const answer = await fetch(live.dataset.live).catch(() => null);
    const text = answer?.ok ? await answer.text() : null;
    if (text !== null && text !== live.told && !live.contains(document.activeElement)) {
      const before = shown();
      live.innerHTML = live.told = text;
      const now = shown();
      if (before.some((run) => !now.includes(run)) && !document.activeElement.matches("input, select")) location.reload();
    }
  }
  setTimeout(follow, 1000);
}
if (live) setTimeout(follow, 1000);
