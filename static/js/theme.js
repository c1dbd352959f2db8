// Keeps the chosen colours in this browser. It runs before the page is painted; without it they are the system's.

const root = document.documentElement;

/** @param {string} theme `light`, `dark`, or nothing for the system's */
function paint(theme) {
  root.dataset.theme = theme;
  for (const button of document.querySelectorAll(".theme button")) button.ariaPressed = String(button.value === theme);
}

paint(localStorage.getItem("theme") ?? "");

document.addEventListener("DOMContentLoaded", () => {
  const buttons = document.querySelector(".theme");
  buttons.hidden = false;
  paint(root.dataset.theme);
  buttons.addEventListener("click", (event) => {
    if (event.target.value === undefined) return;
    localStorage.setItem("theme", event.target.value);
    paint(event.target.value);
  });
});
