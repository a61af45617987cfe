// What is under way, as the server tells it while the page is seen; when a run has ended, the page is loaded anew.
{
  const live = document.querySelector("[data-live]");
  let events, told;
  function show() {
    if (told === undefined || live.contains(document.activeElement)) return;
    const runs = () => [...live.querySelectorAll("[data-run]")].map((each) => each.dataset.run);
    const before = runs(), isOpen = live.querySelector("details")?.open;
    const bottom = () => document.documentElement.scrollHeight - innerHeight;
    const follows = "follow" in live.dataset && scrollY > bottom() - 40;
    live.innerHTML = told;
    if (isOpen !== undefined) live.querySelector("details")?.toggleAttribute("open", isOpen);
    told = undefined;
    if (follows) scrollTo(0, bottom());
    const now = runs();
    if (before.some((run) => !now.includes(run)) && !document.activeElement.matches("input, select")) location.reload();
  }
  function listen() {
    events?.close();
    if (document.hidden) return;
    events = new EventSource(live.dataset.live);
    events.onopen = () => live.classList.remove("lost");
    events.onerror = () => live.classList.add("lost");
    events.onmessage = (event) => {
      told = event.data;
      show();
    };
  }
  if (live) {
    listen();
    document.addEventListener("visibilitychange", listen);
    live.addEventListener("focusout", () => setTimeout(show));
  }
}
