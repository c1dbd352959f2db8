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
    case 403: // The page's token is that of an earlier session.
      return "This page has been open for too long. Copy what you typed, and reload it.";
    default:
      return `This service answered with error ${status}. What you typed stays here; try again in a moment.`;
  }
}

document.addEventListener("change", (event) => {
  if (event.target instanceof HTMLInputElement && event.target.id === "id_file" && event.target.files?.length) {
    document.getElementById("add-pasted")?.click();
  }
});
