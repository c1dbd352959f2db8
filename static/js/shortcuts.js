// Keys that lead on from any page: / to the search, n to a new batch. WCAG 2.1.4 asks that they can be turned off.

const KEPT = "shortcuts-off";

const said = document.getElementById("shortcuts");
const button = said?.querySelector("button");
const menu = document.querySelector("details.menu");

function areOn() {
  try {
    return localStorage.getItem(KEPT) === null;
  } catch {
    return true; // The browser keeps nothing for this page.
  }
}

function show() {
  button?.setAttribute("aria-pressed", String(areOn()));
  if (button) button.textContent = areOn() ? "Turn them off" : "Turn them on";
  for (const key of said?.querySelectorAll("kbd") ?? []) key.classList.toggle("off", !areOn());
}

if (said) {
  said.hidden = false;
  show();
}

button?.addEventListener("click", () => {
  try {
    if (areOn()) localStorage.setItem(KEPT, "1");
    else localStorage.removeItem(KEPT);
  } catch {
    // It lasts no longer than the page then, and nothing can be done.
  }
  show();
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && menu instanceof HTMLDetailsElement && menu.open) {
    menu.open = false;
    menu.querySelector("summary")?.focus();
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || isTyping(event.target) || !areOn()) return;
  const target = document.querySelector(`[aria-keyshortcuts="${CSS.escape(event.key)}"]`);
  if (!(target instanceof HTMLElement)) return;
  event.preventDefault();
  if (target instanceof HTMLAnchorElement) target.click();
  else target.focus();
});

document.addEventListener("click", (event) => {
  if (menu instanceof HTMLDetailsElement && event.target instanceof Node && !menu.contains(event.target)) menu.open = false;
});

/** @param {EventTarget | null} target */
function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}
