// Copies a text; without the permission or a secure address, through a selection.
{
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
  const contentOf = (element) => (element.content ?? element).textContent;
  for (const button of document.querySelectorAll("button[data-copy], button[data-copy-from]")) {
    button.hidden = false;
    const { copy: id, copyFrom: address } = button.dataset;
    copies(button, id ? () => contentOf(document.getElementById(id)) : async () => (await fetch(address)).text());
  }
  for (const link of document.querySelectorAll("a[data-copy-link]")) copies(link, () => link.href);
}
