// What links and forms cannot do: choices that act at once.
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

// Keys: none where somebody types, or with a modifier.
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

for (const text of document.querySelectorAll("form textarea[name=q]")) {
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) text.form.requestSubmit();
  });
}

// Copies a text; without the permission or a secure address, through a selection.
async function copy(text) {
  const isCopied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  if (isCopied) return;
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}
function copies(element, text) {
  const before = element.textContent;
  let shown;
  element.addEventListener("click", async () => {
    await copy(await text());
    element.textContent = "Copied";
    clearTimeout(shown);
    shown = setTimeout(() => (element.textContent = before), 1500);
  });
}
for (const button of document.querySelectorAll("button[data-copy], button[data-copy-from]")) {
  button.hidden = false;
  const { copy: id, copyFrom: address } = button.dataset;
  copies(button, id ? () => document.getElementById(id).textContent : async () => (await fetch(address)).text());
}
for (const link of document.querySelectorAll("a[data-copy-link]")) copies(link, () => link.href);

// The outline of a conversation: one stop for the tab key, arrows within it, and the message that is seen is marked.
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

// Runs that are ticked stay ticked on other pages of the list, until they are compared.
const comparing = document.querySelector("form[action='/compare']:has([name=ticked])");
const boxes = () => [...document.querySelectorAll("input[type=checkbox][name=ticked]")];
const kept = () => ofTab.get("ticked") ?? [];
if (comparing) {
  const others = () => kept().filter((run) => !boxes().some((box) => box.value === run));
  const tell = () => {
    const count = others().length;
    comparing.querySelector("#ticked")?.replaceChildren(count ? `and ${count} on other pages` : "");
  };
  for (const box of boxes()) box.checked = kept().includes(box.value);
  tell();
  document.addEventListener("change", (event) => {
    if (!boxes().includes(event.target)) return;
    ofTab.set("ticked", [...others(), ...boxes().filter((box) => box.checked).map((box) => box.value)]);
  });
  document.addEventListener("formdata", (event) => {
    if (event.target.matches("form[action='/compare']")) for (const run of others()) event.formData.append("ticked", run);
  });
  document.addEventListener("submit", (event) => {
    if (event.target.matches("form[action='/compare']")) setTimeout(() => ofTab.set("ticked", []));
  });
}

// What is under way, as the server tells it while the page is seen; when a run has ended, the page is loaded anew.
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
