// The outline of a conversation: one stop for the tab key, arrows within it, and the message that is seen is marked.
{
  const outline = document.querySelector(".outline");
  const entries = [...(outline?.querySelectorAll("a") ?? [])];
  const target = (entry) => document.getElementById(entry.hash.slice(1));
  function choose(entry) {
    for (const each of entries) {
      each.tabIndex = each === entry ? 0 : -1;
      each.ariaCurrent = each === entry ? "true" : null;
    }
    if (outline.contains(document.activeElement)) return;
    const list = outline.querySelector("ol");
    const place = entry.offsetTop - list.offsetTop;
    if (place < list.scrollTop || place > list.scrollTop + list.clientHeight - entry.offsetHeight) list.scrollTop = place - list.clientHeight / 2;
  }
  if (entries.length) {
    choose(entries.find((entry) => entry.hash === location.hash) ?? entries[0]);
    outline.addEventListener("keydown", (event) => {
      const at = entries.indexOf(document.activeElement);
      const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: entries.length - 1 }[event.key];
      if (at < 0 || next === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      entries.at(Math.min(Math.max(next, 0), entries.length - 1)).focus();
    });
    outline.addEventListener("focusin", (event) => entries.includes(event.target) && choose(event.target));
    outline.addEventListener("click", (event) => event.target.closest("a") && (outline.open = false));
    const seen = new Set();
    const observer = new IntersectionObserver((changes) => {
      for (const { target: turn, isIntersecting } of changes) seen[isIntersecting ? "add" : "delete"](turn);
      const first = entries.find((entry) => seen.has(target(entry)));
      if (first && !outline.contains(document.activeElement)) choose(first);
    }, { rootMargin: "-20% 0px -60%" });
    for (const entry of entries) observer.observe(target(entry));
  }
}
