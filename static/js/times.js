// Durations that go on: the server wrote them as they were, and this counts on from there by the server's clock.

const stated = document.querySelector("[data-now]")?.getAttribute("data-now");
const ahead = stated ? Date.parse(stated) - Date.now() : 0; // of this machine's clock, in milliseconds

// A sentence of this age, in seconds, is as good as new.
const AGED = 5;

/** The server's time, in milliseconds since 1970. */
export const now = () => Date.now() + ahead;

/** Seconds since an ISO 8601 time. @param {string} time */
const secondsSince = (time) => Math.floor((now() - Date.parse(time)) / 1000);

/** A length of time in its two largest units, as the server writes it. @param {number} seconds */
export function span(seconds) {
  const s = Math.max(0, seconds);
  /** @type {[number, string][]} */
  const parts = [[s / 86400, "d"], [(s / 3600) % 24, "h"], [(s / 60) % 60, "min"], [s % 60, "s"]];
  const first = Math.max(0, parts.findIndex(([count]) => count >= 1));
  const shown = parts.slice(first, first + 2).filter(([count]) => count >= 1);
  return shown.map(([count, unit]) => `${Math.floor(count)} ${unit}`).join(" ") || "0 s";
}

/** @param {Element} element @param {string} text */
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function tick() {
  for (const element of document.querySelectorAll("[data-since]")) {
    write(element, span(secondsSince(element.getAttribute("data-since") ?? "")));
  }
  for (const element of document.querySelectorAll("[data-until]")) {
    const left = -secondsSince(element.getAttribute("data-until") ?? "");
    write(element, left > 0 ? `in ${span(left)}` : "now");
  }
  for (const element of document.querySelectorAll("[data-aged]")) {
    element.toggleAttribute("hidden", secondsSince(element.getAttribute("data-aged") ?? "") < AGED);
  }
}

tick();
setInterval(tick, 1000);
document.addEventListener("htmx:afterSettle", tick);

// Whoever points at a time reads it by the clock of this machine.
document.addEventListener("pointerover", (event) => {
  const time = event.target instanceof Element ? event.target.closest("time[datetime]") : null;
  if (!(time instanceof HTMLTimeElement) || time.title) return;
  time.title = new Date(time.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
});
