// Asking this service for a key, or the secret of webhooks, and forgetting it in time.

/** A sentence for the user, where no key is returned. */
export class Failure extends Error {}

/** @param {() => void} act */
export function whenLeft(act) {
  window.addEventListener("pagehide", act);
  document.addEventListener("visibilitychange", () => document.hidden && act());
}

/**
 * @param {string} path
 * @param {HTMLFormElement} form with the token
 * @returns {Promise<string>} the key
 */
export async function reveal(path, form) {
  let answer;
  try {
    answer = await fetch(path, {
      method: "POST",
      headers: { Accept: "application/json", "X-CSRFToken": form.elements.csrfmiddlewaretoken.value },
      cache: "no-store",
    });
  } catch {
    throw new Failure("The browser can't reach this service. Check your connection, then try again.");
  }
  const content = await answer.json().catch(() => null);
  const key = content?.apiKey ?? content?.webhookSecret;
  if (answer.ok && key) return key;
  switch (answer.status) {
    case 401:
      throw new Failure("You are no longer signed in. Reload the page.");
    case 404:
      throw new Failure("This key has expired or was revoked. Reload the page.");
    default:
      throw new Failure(content?.error ?? `This service answered with error ${answer.status}. Try again in a moment.`);
  }
}
