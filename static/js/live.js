// Keeps a batch's page up to date. The page says how often to ask, and when to stop; the reader can pause it. Also
// shows why another request of the page failed, such as a reading of the chain.

import { span } from "./times.js";

const LONGEST_PAUSE = 30; // seconds between tries while the connection is lost
// Seconds between polls of a hidden page. A quiet one takes the server 8 ms: 1,000 hidden pages take 13 % of a core.
const HIDDEN_PAUSE = 60;

const bar = document.getElementById("live");
if (bar && document.getElementById("batch")?.dataset.pollSeconds) follow(bar);

// A button that is disabled while it asks loses the focus.
/** @type {Element | null} */
let asked = null;
document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.detail.elt instanceof HTMLFormElement) asked = document.activeElement;
});

document.addEventListener("htmx:afterRequest", (event) => {
  const { elt, target, successful, xhr } = event.detail;
  if (!(elt instanceof HTMLFormElement)) return;
  // A reader who has moved the focus meanwhile keeps it there.
  if (asked instanceof HTMLElement && [null, document.body].includes(document.activeElement)) asked.focus();
  // With this header htmx opens the page for signing in.
  if (successful || xhr.getResponseHeader("HX-Redirect")) return;
  const problem = Object.assign(document.createElement("p"), { className: "problem", textContent: whyNot(xhr) });
  target.replaceChildren(problem);
});

/** Why a button's request came to nothing, and what to do. @param {XMLHttpRequest} xhr */
function whyNot(xhr) {
  switch (xhr.status) {
    case 0:
      return "The browser can't reach this service. Check your connection, then try again.";
    case 404: // The chain was reorganised.
      return "The batch is no longer DONE. Reload the page.";
    default:
      try {
        return JSON.parse(xhr.responseText).error;
      } catch {
        return `This service answered with error ${xhr.status}. Try again in a moment.`;
      }
  }
}

/** @param {HTMLElement} bar with the button that pauses and the time of the last answer */
function follow(bar) {
  const button = /** @type {HTMLElement} */ (document.getElementById("pause"));
  const updated = /** @type {HTMLElement} */ (document.getElementById("updated"));
  const lost = /** @type {HTMLElement} */ (document.getElementById("lost"));
  const announcement = /** @type {HTMLElement} */ (document.getElementById("announcement"));
  const batch = () => /** @type {HTMLElement} */ (document.getElementById("batch"));
  const isOpen = () => "open" in batch().dataset;

  let answeredAt = Date.now();
  let failures = 0;
  let paused = false;
  let timer = 0;
  let said = batch().dataset.announcement;

  // A refresh keeps details that the reader has opened, and content that a script has changed. They have an id, because
  // a node without one is found by its place, which another node may have in the new page.
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, element) =>
    !(name === "open" && element instanceof HTMLDetailsElement) && name !== "style";
  Idiomorph.defaults.callbacks.beforeNodeMorphed = (element) =>
    !(element instanceof HTMLElement && "keep" in element.dataset);
  Idiomorph.defaults.ignoreActiveValue = true;

  function schedule() {
    clearTimeout(timer);
    const seconds = Number(batch().dataset.pollSeconds);
    if (!seconds) return stop();
    // A hidden page waits for the end of its batch alone, which its title tells.
    if (paused || (document.hidden && !isOpen())) return;
    const pause = document.hidden ? HIDDEN_PAUSE : Math.min(LONGEST_PAUSE, seconds * 2 ** failures);
    timer = setTimeout(refresh, 1000 * pause);
  }

  function refresh() {
    if (!paused) htmx.trigger(batch(), "refresh");
  }

  function stop() {
    bar.classList.add("gone");
    lost.hidden = true;
    clearInterval(clock);
  }

  function showAge() {
    const age = span(Math.floor((Date.now() - answeredAt) / 1000));
    updated.textContent = age;
    if (failures) lost.querySelector("span").textContent = age;
  }

  /** @param {string} why a sentence */
  function showLost(why) {
    if (lost.hidden) {
      // Written once, so that it is read out once; only the age in it goes on.
      lost.replaceChildren(`${why} Trying again. What you see is `, document.createElement("span"), " old.");
      lost.querySelector("span").ariaHidden = "true";
    }
    lost.hidden = false;
  }

  document.addEventListener("htmx:afterRequest", (event) => {
    const { elt, xhr, successful } = event.detail;
    if (elt.id !== "batch") return;
    if (successful) {
      failures = 0;
      answeredAt = Date.now();
      lost.hidden = true;
    } else {
      failures += 1;
      showLost(xhr.status ? `This service answers with an error (${xhr.status}).` : "The connection to this service is lost.");
    }
    showAge();
    schedule();
  });

  // Notes come and go, and texts get shorter. What is below them stays where it is.
  const above = () => /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".summary, .strip > div"));
  document.addEventListener("htmx:beforeSwap", ({ detail }) => {
    if (detail.target === batch()) for (const part of above()) part.style.minHeight = `${part.offsetHeight}px`;
  });
  const giveBack = () => above().forEach((part) => (part.style.minHeight = ""));
  let width = innerWidth;
  window.addEventListener("resize", () => {
    // A phone's address bar changes the height while somebody reads.
    if (innerWidth !== width) giveBack();
    width = innerWidth;
  });

  document.addEventListener("htmx:afterSettle", () => {
    const now = batch().dataset.announcement;
    if (now !== said) announcement.textContent = said = now ?? "";
    schedule();
  });

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      giveBack();
      schedule();
    } else refresh();
  });
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Resume updates" : "Pause updates";
    clearTimeout(timer);
    refresh();
  });

  const clock = setInterval(showAge, 250);
  // Before all scripts are loaded, htmx hears no refresh, and none would follow.
  if (document.readyState === "complete") schedule();
  else document.addEventListener("DOMContentLoaded", schedule, { once: true });
}
