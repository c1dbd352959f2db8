"""Simulate a person at a page: count actions, and add up the person's and the service's time.

The person's time follows the keystroke-level model of Card, Moran and Newell (The keystroke-level model for user
performance time with interactive systems, 1980), with their averages.
"""

import time
from dataclasses import dataclass

from playwright.sync_api import Locator, Page, expect

_KEY, _POINT, _PRESS, _THINK = 0.28, 1.1, 0.2, 1.35  # seconds
# Seconds to scroll by a screen and find the place again.
_SCROLL = 1.0


@dataclass
class Hand:
    page: Page
    clicks: int = 0
    keys: int = 0
    scrolls: int = 0
    """The number of screens scrolled."""
    seconds: float = 0
    """The person's time in seconds according to the model."""
    _began: float = 0

    def open(self, url: str) -> None:
        """Open the first page of the task."""
        self.page.goto(url)
        self._began = time.perf_counter()

    def click(self, target: Locator) -> None:
        self.look(target)
        self.clicks += 1
        self.seconds += _POINT + _PRESS
        target.click()

    def paste(self, text: str) -> None:
        """Paste the copied text into the focused element, by Ctrl+V."""
        self.keys += 1
        self.seconds += _THINK + 2 * _KEY
        self.page.keyboard.insert_text(text)

    def press(self, key: str) -> None:
        self.keys += 1
        self.seconds += _KEY
        self.page.keyboard.press(key)

    def look(self, target: Locator) -> None:
        """Find the target, and scroll to it if it is out of sight."""
        expect(target).to_be_visible()
        self.seconds += _THINK
        box, size = target.bounding_box(), self.page.viewport_size
        assert box
        assert size
        screens = max(0, -(-(box["y"] + box["height"] - size["height"]) // size["height"]))
        self.scrolls += int(screens)
        self.seconds += _SCROLL * screens
        target.scroll_into_view_if_needed()

    def choose_file(self, target: Locator, path: str) -> None:
        """Choose a file in the system's dialog with three clicks: the field, the file, "Open"."""
        self.look(target)
        self.clicks += 3
        self.seconds += 3 * (_POINT + _PRESS) + 2 * _THINK
        target.set_input_files(path)

    def __str__(self) -> str:
        waited = time.perf_counter() - self._began
        return (
            f"{self.clicks} clicks, {self.keys} keys, {self.scrolls} screens scrolled, {self.seconds:.1f} s of the "
            f"person, {waited:.1f} s of the machine"
        )


def leave(page: Page, event: str) -> None:
    """Dispatch the event of a page that is left (pagehide) or hidden (visibilitychange)."""
    page.evaluate(
        """(event) => {
            Object.defineProperty(document, "hidden", { get: () => true });
            (event === "pagehide" ? window : document).dispatchEvent(new Event(event));
        }""",
        event,
    )
