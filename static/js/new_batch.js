// What the form can't say by itself: that nothing came back. All else on it is htmx and the server's.

const failed = /** @type {HTMLElement} */ (document.getElementById("failed"));

document.addEventListener("htmx:afterRequest", (event) => {
  const { successful, xhr } = event.detail;
  // What was typed meanwhile has replaced it.
  if (!successful && xhr.status === 0 && xhr.statusText === "" && event.detail.failed === false) return;
  failed.hidden = successful;
  if (!successful) failed.textContent = whyNot(xhr.status);
});

/** @param {number} status */
function whyNot(status) {
  switch (status) {
    case 0:
      return "This service can't be reached. Check your connection; what you typed stays here.";
    case 403: // The page's token is that of an earlier session.
      return "This page has been open for too long. Reload it.";
    default:
      return `This service answered with error ${status}. What you typed stays here; try again in a moment.`;
  }
}

// A file that was chosen is read at once.
document.addEventListener("change", (event) => {
  if (event.target instanceof HTMLInputElement && event.target.id === "id_file" && event.target.files?.length) {
    document.getElementById("add-pasted")?.click();
  }
});
