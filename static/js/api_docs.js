// Tries requests of the API from its page. The key is asked for when the reader wants to use it, is held by this script
// alone and sent in a header alone, and is gone once the page is left.

import { Failure, reveal, whenLeft } from "./reveal.js";

const MOST_SHOWN = 20_000; // characters of an answer
const ANSWER_MS = 60_000;

const keyForm = /** @type {HTMLFormElement} */ (document.getElementById("own-key"));
const keyStatus = /** @type {HTMLElement} */ (document.getElementById("key-status"));
const chosen = /** @type {HTMLSelectElement | null} */ (document.getElementById("own-key-name"));
const pasted = /** @type {HTMLInputElement} */ (document.getElementById("pasted-key"));
const forgetButton = /** @type {HTMLButtonElement} */ (document.getElementById("forget-key"));

let held = "";
/** The question for a key that is under way; another object, or null, once the page was left. */
let asking = null;

keyForm.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!chosen) return;
  const option = chosen.selectedOptions[0];
  const asked = (asking = {});
  try {
    const key = await reveal(chosen.value, keyForm);
    if (asking !== asked) return;
    held = key;
    pasted.value = "";
    forgetButton.hidden = false;
    keyStatus.textContent =
      `Requests that need a key have ${option.text} (${option.dataset.ends}), until you leave this page.`;
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    keyStatus.textContent = error.message;
  }
});

pasted.addEventListener("input", () => {
  asking = null;
  if (!held) return;
  held = "";
  forgetButton.hidden = true;
  keyStatus.textContent = "Requests that need a key have the one that you have typed.";
});

forgetButton.addEventListener("click", () => {
  forget();
  keyForm.querySelector("button")?.focus();
});
whenLeft(forget);

function forget() {
  asking = null;
  pasted.value = "";
  if (!held) return;
  held = "";
  forgetButton.hidden = true;
  keyStatus.textContent = "The key is forgotten.";
}

for (const form of document.querySelectorAll("form[data-try]")) prepare(/** @type {HTMLFormElement} */ (form));
keyForm.hidden = false;

/** @param {HTMLFormElement} form */
function prepare(form) {
  const status = /** @type {HTMLElement} */ (form.querySelector("[role=status]"));
  const output = /** @type {HTMLElement} */ (form.querySelector("pre"));
  const button = /** @type {HTMLButtonElement} */ (form.querySelector("button"));
  form.closest("details")?.removeAttribute("hidden");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const key = pasted.value.trim() || held;
    output.hidden = true;
    if ("needsKey" in form.dataset && !key) {
      status.textContent = "This request needs a key. Choose one at the top of the page.";
      return;
    }
    button.disabled = true;
    status.textContent = "Waiting for the answer.";
    try {
      const answer = await send(form, key);
      status.textContent = `${answer.status} ${answer.statusText}`;
      output.textContent = readable(await answer.text());
      output.hidden = false;
    } catch {
      status.textContent = "No answer came. Check your connection and what you have written, then try again.";
    }
    button.disabled = false;
    if (document.activeElement === document.body) button.focus();
  });
}

/** @param {HTMLFormElement} form @param {string} key */
function send(form, key) {
  const [method, template] = /** @type {string} */ (form.dataset.try).split(" ");
  let path = template;
  const query = new URLSearchParams();
  const headers = new Headers({ Accept: "application/json" });
  if ("needsKey" in form.dataset) headers.set("api-key", key);
  /** @type {string | undefined} */
  let body;
  for (const input of form.querySelectorAll("[data-in]")) {
    const { name, value } = /** @type {HTMLInputElement} */ (input);
    const place = /** @type {HTMLElement} */ (input).dataset.in;
    if (place === "path") path = path.replace(`{${name}}`, encodeURIComponent(value.trim()));
    else if (place === "body") body = value;
    else if (value && place === "header") headers.set(name, value);
    else if (value) query.set(name, value);
  }
  if (body !== undefined) headers.set("Content-Type", "application/json");
  const url = query.size ? `${path}?${query}` : path;
  // The API takes a key and no cookie; so does this.
  const credentials = "omit";
  return fetch(url, { method, headers, body, credentials, cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
}

/** @param {string} text of an answer */
function readable(text) {
  let pretty = text;
  try {
    pretty = JSON.stringify(JSON.parse(text), null, 2);
  } catch { /* It is shown as it is. */ }
  if (pretty.length > MOST_SHOWN) return `${pretty.slice(0, MOST_SHOWN)}\n… ${pretty.length} characters in all`;
  return pretty || "(no body)";
}
