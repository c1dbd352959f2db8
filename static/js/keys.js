// Shows and copies keys, and the secret of webhooks, without a page of their own. A key is asked for when the user wants
// it, is seen for a minute, and is gone once the page is left; copying puts it into the clipboard alone.

import { Failure, reveal, whenLeft } from "./reveal.js";

const SHOWN_MS = 60_000;

for (const code of document.querySelectorAll("[data-revealed]")) {
  // The server showed this one, to a post from before this script was there.
  const hide = () => (code.textContent = code.dataset.ends);
  setTimeout(hide, SHOWN_MS);
  whenLeft(hide);
}
for (const form of document.querySelectorAll("form[data-reveal]")) prepare(/** @type {HTMLFormElement} */ (form));

/** @param {HTMLFormElement} form */
function prepare(form) {
  const code = form.closest("tr, section").querySelector("[data-key]");
  const status = form.querySelector("[data-status]");
  const showButton = form.querySelector("[data-show]");
  const copyButton = form.querySelector("[data-copy]");
  let timer = 0;
  /** The question for the key that is under way; another object, or null, once the page was left. */
  let asking = null;

  function hide() {
    asking = null;
    if (!timer) return;
    clearTimeout(timer);
    timer = 0;
    code.textContent = code.dataset.ends;
    showButton.textContent = "Show";
    status.textContent = "Hidden again.";
  }

  async function show() {
    const asked = (asking = {});
    const key = await reveal(form.action, form);
    if (asking !== asked) throw new Failure("Not shown, because you left the page.");
    code.textContent = key;
    showButton.textContent = "Hide";
    status.textContent = "Shown for a minute.";
    timer = setTimeout(hide, SHOWN_MS);
  }

  async function copy() {
    const key = reveal(form.action, form);
    // The promise is handed over as it is, because some browsers let only the click itself begin to copy.
    await navigator.clipboard.write([
      new ClipboardItem({ "text/plain": key.then((text) => new Blob([text], { type: "text/plain" })) }),
    ]);
    status.textContent = "Copied.";
  }

  /** @param {() => Promise<void>} act */
  async function attempt(act) {
    showButton.disabled = copyButton.disabled = true;
    const focused = document.activeElement;
    try {
      await act();
    } catch (error) {
      status.textContent = error instanceof Failure ? error.message : "The browser didn't let this page copy. Show the key, then copy it yourself.";
    }
    showButton.disabled = copyButton.disabled = false;
    if (focused === showButton || focused === copyButton) focused.focus();
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (timer) hide();
    else attempt(show);
  });
  copyButton.addEventListener("click", () => attempt(copy));
  copyButton.hidden = !navigator.clipboard?.write; // only on https and on this machine
  whenLeft(hide);
}
