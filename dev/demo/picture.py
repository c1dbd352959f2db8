"""The picture of a batch's page, for the README."""

import shutil
from pathlib import Path

from playwright.sync_api import Error, sync_playwright

from demo.installation import DemoError

WIDTH = 1280


def take(base_url: str, file: Path) -> None:
    """Save a picture of the page of the service's newest batch down to its transactions, wide and in the light theme.

    Raises `DemoError` if there is no Chromium.
    """
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if chromium is None:
        raise DemoError("The picture needs Chromium: make chromium installs it.")
    try:
        with (
            sync_playwright() as playwright,
            playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]) as browser,
        ):
            page = browser.new_page(viewport={"width": WIDTH, "height": 1000}, color_scheme="light")
            page.goto(f"{base_url}/explorer")
            page.locator("a[href^='/explorer/query/']:visible").first.click()
            page.get_by_text("DONE", exact=True).first.wait_for()
            heading = page.get_by_role("heading", name="Transactions", exact=True).bounding_box()
            height = heading["y"] if heading else 2000
            page.screenshot(path=file, full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})
    except Error as error:
        raise DemoError(f"The picture could not be taken: {error.message}") from None
