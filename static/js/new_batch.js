// Says that the page waits for an answer, or that none came. Reads a chosen file at once. Keeps the fields for a user
// who comes back. htmx and the server do the rest.

const failed = /** @type {HTMLElement} */ (document.getElementById("failed"));
const waiting = /** @type {HTMLElement} */ (document.getElementById("waiting"));

// A request that newer typing has replaced causes none of these events.
for (const name of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(name, (event) => {
    failed.textContent = whyNot(event.detail.xhr.status);
    failed.hidden = false;
    forgetEstimate();
  });
}
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.successful) failed.hidden = true;
});

/** Removes the estimate and the counts beside the form, because they are of an earlier input. */
function forgetEstimate() {
  for (const id of ["estimate", "by-api-json"]) {
    const hint = Object.assign(document.createElement("p"), { className: "hint" });
    hint.textContent = "The service did not answer your last change.";
    document.getElementById(id)?.replaceChildren(hint);
  }
  for (const id of ["estimate-said", "bar-cost"]) document.getElementById(id)?.replaceChildren();
  document.getElementById("fact-count")?.replaceChildren("this batch");
}

/** @param {number} status of the answer; 0: there was none */
function whyNot(status) {
  switch (status) {
    case 0:
      return "The browser can't reach this service. What you typed stays here; check your connection.";
    case 413:
      return "One form can't hold this much. What you typed stays here: split it into several batches, or use the API.";
    default:
      return `This service answered with error ${status}. What you typed stays here; try again in a moment.`;
  }
}

// The answer to a button is a whole form. What was typed before it comes would be lost in it, so nothing can be typed.
document.addEventListener("htmx:beforeRequest", (event) => {
  const form = formOf(event);
  if (!form) return;
  form.inert = true;
  waiting.textContent = "Waiting for the answer.";
});
// Next htmx moves the focus to where a new form says. A reader who went to another part of the page stays there.
document.addEventListener("htmx:afterSwap", ({ target }) => {
  const now = document.activeElement;
  if (!(target instanceof Element) || !now || now.contains(target) || target.contains(now)) return;
  for (const one of target.querySelectorAll("[autofocus]")) one.removeAttribute("autofocus");
});
document.addEventListener("htmx:afterRequest", (event) => {
  const form = formOf(event);
  if (!form) return;
  form.inert = false;
  waiting.textContent = "";
  if (document.activeElement === document.body) event.detail.requestConfig.elt.focus();
});

/** The form of the button that made the request; null for typing. @param {Event} event @returns {HTMLFormElement | null} */
function formOf(event) {
  // Where the element is gone, the event itself tells of one that is left.
  const { elt } = event.detail.requestConfig;
  return elt instanceof HTMLButtonElement ? elt.form : null;
}

document.addEventListener("change", ({ target }) => {
  if (!(target instanceof HTMLInputElement)) return;
  if (target.id === "id_file") readChosenFile();
  if (/-kind$/.test(target.name)) chooseBlock(target);
});

document.addEventListener("click", ({ target }) => {
  if (target instanceof HTMLElement && target.id === "choose-file") document.getElementById("id_file")?.click();
});

/** Chooses a transaction's own block with events, and the latest with all else, unless a block was chosen. @param {HTMLInputElement} kind */
function chooseBlock(kind) {
  const row = kind.closest(".ask");
  const isNamed = row?.querySelector(".at-transaction input")?.value;
  const [before, after] = kind.value === "event" ? ["latest", "transaction"] : ["transaction", "latest"];
  const radio = (/** @type {string} */ value) => row?.querySelector(`[name$="-at"][value="${value}"]`);
  if (!isNamed && radio(before)?.checked) radio(after).checked = true;
}
// It may have been chosen before this script was there. By now htmx listens to the button.
document.addEventListener("DOMContentLoaded", readChosenFile);

function readChosenFile() {
  const field = document.getElementById("id_file");
  if (field instanceof HTMLInputElement && field.files?.length) document.getElementById("add-pasted")?.click();
}

// A browser that kept no copy of the page shows an empty form on the way back.
const KEPT = `new-batch of ${waiting.dataset.user}`;
addEventListener("pagehide", () => {
  const fields = new FormData(/** @type {HTMLFormElement} */ (document.getElementById("new-batch")));
  fields.delete("file");
  try {
    sessionStorage.setItem(KEPT, JSON.stringify([...fields]));
  } catch {
    sessionStorage.removeItem(KEPT); // It is too large.
  }
});
const [opened] = /** @type {PerformanceNavigationTiming[]} */ (performance.getEntriesByType("navigation"));
const kept = sessionStorage.getItem(KEPT);
if (kept && opened?.type === "back_forward") {
  const values = new FormData();
  for (const [name, value] of JSON.parse(kept)) values.append(name, value);
  htmx.ajax("POST", location.pathname, { source: waiting, values, target: "#new-batch", swap: "outerHTML settle:0ms" });
}
