// Loads the check of a batch's proof on demand. Few readers use it, and the page is small without it.

document.addEventListener("click", async (event) => {
  const button = event.target instanceof Element ? event.target.closest("#check > button") : null;
  if (!(button instanceof HTMLButtonElement)) return;
  button.disabled = true;
  try {
    const { check } = await import("./checking.js");
    await check(button.parentElement);
  } catch {
    button.disabled = false;
    const status = /** @type {HTMLElement} */ (button.parentElement?.querySelector("[role=status]"));
    status.textContent = "The browser could not load the script that checks the proof. Reload the page, then try again.";
  }
});
