// Changes the colours without loading the page again. Without this script the same form does it by a post.

const form = /** @type {HTMLFormElement} */ (document.querySelector("form.theme"));

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const chosen = /** @type {HTMLButtonElement} */ (event.submitter);
  for (const button of form.querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button === chosen));
  }
  if (chosen.value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen.value;
  const scheme = chosen.value === "system" ? "light dark" : chosen.value;
  document.querySelector("meta[name=color-scheme]")?.setAttribute("content", scheme);
  // The server sets the cookie that the next page is painted by. If it can't be reached, the colours last for this page.
  fetch(form.action, { method: "POST", body: new URLSearchParams({ theme: chosen.value }), redirect: "manual" }).catch(() => {});
});
