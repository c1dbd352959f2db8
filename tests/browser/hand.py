"""A person at a page, whose actions are counted."""

from dataclasses import dataclass

from playwright.sync_api import Locator, Page, expect


@dataclass
class Hand:
    page: Page
    clicks: int = 0
    keys: int = 0
    scrolls: int = 0
    """The number of screens scrolled."""

    def click(self, target: Locator) -> None:
        self.look(target)
        self.clicks += 1
        target.click()

    def paste(self, text: str) -> None:
        """Paste the copied text into the focused element, by Ctrl+V."""
        self.keys += 1
        self.page.keyboard.insert_text(text)

    def press(self, key: str) -> None:
        self.keys += 1
        self.page.keyboard.press(key)

    def look(self, target: Locator) -> None:
        """Find the target, and scroll to it if it is out of sight."""
        expect(target).to_be_visible()
        box, size = target.bounding_box(), self.page.viewport_size
        assert box
        assert size
        self.scrolls += int(max(0, -(-(box["y"] + box["height"] - size["height"]) // size["height"])))
        target.scroll_into_view_if_needed()

    def choose_file(self, target: Locator, path: str) -> None:
        """Choose a file in the system's dialog with three clicks: the field, the file, "Open"."""
        self.clicks += 3
        with self.page.expect_file_chooser() as chosen:
            self.look(target)
            target.click()
        chosen.value.set_files(path)


def leave(page: Page, event: str) -> None:
    """Dispatch the event of a page that is left (pagehide) or hidden (visibilitychange)."""
    page.evaluate(
        """(event) => {
            Object.defineProperty(document, "hidden", { get: () => true, configurable: true });
            (event === "pagehide" ? window : document).dispatchEvent(new Event(event));
        }""",
        event,
    )


def come_back(page: Page) -> None:
    """Show a page that `leave` has hidden."""
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
