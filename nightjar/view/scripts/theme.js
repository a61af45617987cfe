// The colours that the reader chose. This script blocks the page, which is therefore never painted in other colours.
{
  const choices = ["auto", "light", "dark"];
  const chosen = () => {
    const theme = ofReader.get("theme");
    return choices.includes(theme) ? theme : "auto";
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
    ofReader.set("theme", next);
    colour(next);
  });
}
