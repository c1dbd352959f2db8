// Sends the requests that a reader fills in on the API's page. The key goes into a header, and is stored nowhere.

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!(form instanceof HTMLFormElement) || !form.closest(".try")) return;
  event.preventDefault();
  const { method, path } = form.dataset;
  if (!method || !path) return; // the field of the key
  const status = /** @type {HTMLElement} */ (form.querySelector("[role=status]"));
  const answer = /** @type {HTMLElement} */ (form.querySelector("pre"));
  status.textContent = "Waiting for the answer …";
  answer.hidden = true;
  try {
    const response = await fetch(...request(form, method, path));
    status.textContent = `${response.status} ${response.statusText}`;
    answer.textContent = readable(await response.text());
    answer.hidden = !answer.textContent;
  } catch {
    status.textContent = "The browser can't reach this service.";
  }
});

/** @param {HTMLFormElement} form @param {string} method @param {string} path @returns {[string, RequestInit]} */
function request(form, method, path) {
  /** @type {Record<string, string>} */
  const headers = { accept: "application/json" };
  const query = new URLSearchParams();
  for (const field of form.querySelectorAll("input")) {
    if (!field.value) continue;
    if (field.dataset.place === "path") path = path.replace(`{${field.name}}`, encodeURIComponent(field.value));
    else if (field.dataset.place === "header") headers[field.name] = field.value;
    else query.append(field.name, field.value);
  }
  const key = /** @type {HTMLInputElement} */ (document.getElementById("api-key")).value;
  if ("key" in form.dataset && key) headers["api-key"] = key;
  const body = form.querySelector("textarea")?.value;
  if (body !== undefined) headers["content-type"] = "application/json";
  // Without the cookie of the session, an answer is that of a program.
  return [query.size ? `${path}?${query}` : path, { method, headers, body, credentials: "omit" }];
}

/** JSON with line breaks; unchanged where a number would lose digits. @param {string} text */
function readable(text) {
  try {
    return JSON.stringify(JSON.parse(text, (_, value) => {
      if (typeof value === "number" && Math.abs(value) > Number.MAX_SAFE_INTEGER) throw new RangeError();
      return value;
    }), null, 2);
  } catch {
    return text;
  }
}
