// The colours that the reader chose. This script blocks the page, which is therefore never painted in other colours.
const choices = ["auto", "light", "dark"];
const chosen = () => {
  try {
    return choices.includes(localStorage.theme) ? localStorage.theme : "auto";
  } catch {
    return "auto"; // where storage is not permitted
  }
};

function colour(theme) {
  document.documentElement.dataset.theme = theme;
  for (const button of document.querySelectorAll(".theme")) {
    button.textContent = theme[0].toUpperCase() + theme.slice(1);
    button.ariaLabel = `Colours: ${button.textContent}`;
  }
}

colour(chosen());
document.addEventListener("DOMContentLoaded", () => colour(chosen()));
addEventListener("storage", () => colour(chosen()));
document.addEventListener("click", (event) => {
  if (!event.target.closest(".theme")) return;
  const next = choices[(choices.indexOf(document.documentElement.dataset.theme) + 1) % choices.length];
  try {
    localStorage.theme = next;
  } catch {} // then the choice lasts as long as the page
  colour(next);
});
