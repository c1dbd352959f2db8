// Buttons that copy a value, or the text of an element that the page holds anyway.

const SAID_FOR = 2000; // milliseconds that a button says what came of it

document.addEventListener("click", async (event) => {
  const button = event.target instanceof Element ? event.target.closest("button.copy") : null;
  if (!(button instanceof HTMLElement)) return;
  const text = button.dataset.copy ?? document.getElementById(button.dataset.copyFrom ?? "")?.textContent ?? "";
  const said = /** @type {HTMLElement} */ (button.querySelector("span"));
  said.textContent = (await copied(text)) ? "Copied" : "Not copied";
  said.dataset.keep = ""; // live.js leaves it
  setTimeout(() => {
    said.textContent = "";
    delete said.dataset.keep;
  }, SAID_FOR);
});

/** @param {string} text @returns {Promise<boolean>} */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedTheOldWay(text);
  }
}

/** Browsers have no clipboard for pages that came without TLS from another machine. @param {string} text */
function copiedTheOldWay(text) {
  const focused = document.activeElement;
  const area = document.body.appendChild(document.createElement("textarea"));
  area.className = "unseen";
  area.value = text;
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (focused instanceof HTMLElement) focused.focus();
  return done;
}
