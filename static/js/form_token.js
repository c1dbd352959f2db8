// Who has signed in anew, in another tab, has another token: that of this page is an earlier session's.
document.addEventListener("htmx:configRequest", renew);
document.addEventListener("submit", renew, true);

/** @param {Event} event */
function renew(event) {
  const token = document.cookie.match(/(?:^|; )csrftoken=([^;]+)/)?.[1];
  if (!token) return;
  for (const field of document.querySelectorAll("input[name=csrfmiddlewaretoken]")) field.value = token;
  const sent = event instanceof CustomEvent && event.detail.parameters;
  if (sent?.csrfmiddlewaretoken) sent.csrfmiddlewaretoken = token;
}
