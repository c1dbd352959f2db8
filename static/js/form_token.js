// Signing in anew in another tab changes the token, so this page's token may be that of an earlier session.
document.addEventListener("htmx:configRequest", renew);
document.addEventListener("submit", renew, true);

/** @param {Event} event */
function renew(event) {
  const name = /** @type {HTMLMetaElement} */ (document.querySelector("meta[name=csrf-cookie]")).content;
  const token = document.cookie.match(`(?:^|; )${name}=([^;]+)`)?.[1];
  if (!token) return;
  for (const field of document.querySelectorAll("input[name=csrfmiddlewaretoken]")) field.value = token;
  const sent = event instanceof CustomEvent && event.detail.parameters;
  if (sent?.csrfmiddlewaretoken) sent.csrfmiddlewaretoken = token;
}
