// What the form can't say by itself: that nothing came back. And a file that was chosen is read at once. All else is
// htmx and the server's.

const failed = /** @type {HTMLElement} */ (document.getElementById("failed"));

// A request that newer typing has replaced is none of these.
for (const name of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(name, (event) => {
    failed.textContent = whyNot(event.detail.xhr.status);
    failed.hidden = false;
  });
}
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.successful) failed.hidden = true;
});

/** @param {number} status of the answer; 0: there was none */
function whyNot(status) {
  switch (status) {
    case 0:
      return "This service can't be reached. What you typed stays here; check your connection.";
    case 413:
      return "This is too much for one form. What you typed stays here: make several batches of it, or use the API.";
    default:
      return `This service answered with error ${status}. What you typed stays here; try again in a moment.`;
  }
}

// Who has signed in anew, in another tab, has another token: that of the page is an earlier session's.
document.addEventListener("htmx:configRequest", renewToken);
document.addEventListener("submit", renewToken, true);

/** @param {Event} event */
function renewToken(event) {
  const token = document.cookie.match(/(?:^|; )csrftoken=([^;]+)/)?.[1];
  const form = /** @type {HTMLFormElement} */ (document.getElementById("new-batch"));
  const field = form.elements.namedItem("csrfmiddlewaretoken");
  if (!token || !(field instanceof HTMLInputElement)) return;
  field.value = token;
  if (event instanceof CustomEvent) event.detail.parameters.csrfmiddlewaretoken = token;
}

document.addEventListener("change", (event) => {
  if (event.target instanceof HTMLInputElement && event.target.id === "id_file" && event.target.files?.length) {
    document.getElementById("add-pasted")?.click();
  }
});
