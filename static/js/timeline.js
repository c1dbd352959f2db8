// Draws the timeline of an open batch on: what the server drew ended when the page was asked for, and time goes on.
// explorer/templatetags/timeline_drawing.py draws the same, and explains the numbers.

import { now } from "./times.js";

const THINNEST = 0.8, LEAST_LABELLED = 4; // percent
const SECOND = 10, MINUTE = 600, HOUR = 36_000, DAY = 864_000; // tenths of seconds
const MOST_TICKS = 4, LAST_TICK = 80;
const TICKS = [
  1, 2, 5,
  ...[1, 2, 5, 10, 15, 30].map((count) => count * SECOND),
  ...[1, 2, 5, 10, 15, 30].map((count) => count * MINUTE),
  ...[1, 2, 3, 6, 12].map((count) => count * HOUR),
  ...[1, 2, 5, 10, 30].map((count) => count * DAY),
];

function draw() {
  for (const svg of document.querySelectorAll("svg[data-start]")) {
    const seconds = Math.max(0.1, (now() - Date.parse(svg.getAttribute("data-start") ?? "")) / 1000);
    for (const bar of svg.querySelectorAll("[data-a]")) place(bar, seconds);
    const axis = svg.querySelector(".axis");
    if (axis) axis.innerHTML = ticks(10 * seconds, Number(axis.getAttribute("data-top")));
  }
}

/** @param {Element} bar @param {number} whole seconds that the timeline has */
function place(bar, whole) {
  const from = Number(bar.getAttribute("data-a")), to = Number(bar.getAttribute("data-b") ?? whole);
  const width = Math.min(Math.max((100 * (to - from)) / whole, THINNEST), 100);
  const x = Math.max(0, Math.min((100 * from) / whole, 100 - width));
  bar.setAttribute("x", `${x}%`);
  bar.setAttribute("width", `${width}%`);
  const label = bar.nextElementSibling;
  if (!label?.classList.contains("in")) return;
  label.setAttribute("x", `${x + width / 2}%`);
  if (width < LEAST_LABELLED) label.setAttribute("display", "none");
  else label.removeAttribute("display");
}

/** @param {number} whole tenths of seconds @param {number} top pixels */
function ticks(whole, top) {
  const step = TICKS.find((one) => whole / one <= MOST_TICKS) ?? DAY * 30;
  const [unit, size] = step % DAY === 0 ? ["d", DAY] : step % HOUR === 0 ? ["h", HOUR]
    : step % MINUTE === 0 ? ["min", MINUTE] : ["s", SECOND];
  let drawn = "";
  for (let at = 0; (100 * at) / whole <= LAST_TICK; at += step) {
    const x = (100 * at) / whole;
    drawn += `<rect class="tick" x="${x}%" y="${top}" width="1" height="4"/>` +
      `<text class="${at ? "" : "first"}" x="${x}%" y="${top + 17}">${at / size} ${unit}</text>`;
  }
  return drawn;
}

draw();
setInterval(draw, 1000);
document.addEventListener("htmx:afterSettle", draw);
