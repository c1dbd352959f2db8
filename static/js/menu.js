// Closes the account's menu: by Escape, which gives the focus back, or by a click elsewhere.

const menu = document.querySelector("details.menu");

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && menu instanceof HTMLDetailsElement && menu.open) {
    menu.open = false;
    menu.querySelector("summary")?.focus();
  }
});

document.addEventListener("click", (event) => {
  if (menu instanceof HTMLDetailsElement && event.target instanceof Node && !menu.contains(event.target)) menu.open = false;
});
