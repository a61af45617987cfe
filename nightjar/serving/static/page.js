// What links and forms cannot do: choices that act at once.
for (const choice of document.querySelectorAll(".filters select")) {
  choice.addEventListener("change", () => choice.form.requestSubmit());
}
