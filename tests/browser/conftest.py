"""A real browser and the real pages: all browser tests share one Chromium and one server.

A test fails if its page logs an error, throws, breaks the content security policy or asks another host.
"""

import gzip
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest
from django.conf import settings as project_settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.core.signals import request_finished, request_started
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    Request,
    Response,
    expect,
    sync_playwright,
)

from accounts import keys
from accounts.models import User
from config.configured_chains import forget_chains
from devnet.devchain import DevChain
from tests.accounts.wallets import ALICE
from tests.browser.wallet import Wallet
from tests.deployed import deploy_on
from tests.factories import until
from tests.service import chains_toml

DEAD_NODE = "http://127.0.0.1:1"  # Nothing listens on port 1.
NARROW, WIDE = {"width": 320, "height": 640}, {"width": 1280, "height": 800}
TIMEOUT = 40_000  # milliseconds for a page to meet an expectation

_PACKAGES = Path(__file__).parents[2] / "node_modules"
_AXE = _PACKAGES / "axe-core" / "axe.min.js"
_WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


# A wide font, which is all that Debian's Chromium brings, and a narrow one. The machine's own fonts are never used.
_FONTS = """<?xml version="1.0"?>
<fontconfig>
  <dir>{packages}/dejavu-fonts-ttf/ttf</dir>
  <dir>{packages}/@expo-google-fonts/pt-sans-narrow</dir>
  <cachedir>{cache}</cachedir>
  <alias binding="same"><family>sans-serif</family><prefer><family>DejaVu Sans</family></prefer></alias>
  <alias binding="same"><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
"""
NARROW_FONT = "PT Sans Narrow"


@pytest.fixture(scope="session")
def fonts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a configuration of fontconfig that has the fonts of the locked packages only."""
    folder = tmp_path_factory.mktemp("fonts")
    file = folder / "fonts.conf"
    file.write_text(_FONTS.format(packages=escape(str(_PACKAGES)), cache=escape(str(folder))))
    return file


@pytest.fixture(scope="package")
def browser(fonts: Path) -> Iterator[Browser]:
    # The headless shell needs half of the processor time of the full Chromium.
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if chromium is None:
        pytest.fail("Browser tests need Chromium: as root, apt-get install chromium-headless-shell.")
    arguments = (
        "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync"
    )
    with (
        pytest.MonkeyPatch.context() as patch,
        sync_playwright() as playwright,
        playwright.chromium.launch(
            executable_path=chromium, args=arguments.split(), env={**os.environ, "FONTCONFIG_FILE": str(fonts)}
        ) as browser,
    ):
        # Playwright's event loop runs in this thread, and Django refuses database queries beside an event loop.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        expect.set_options(timeout=TIMEOUT)
        yield browser


@pytest.fixture
def under_way() -> Iterator[set[int]]:
    """Yield the ids of the server's threads that are answering a request."""
    threads: set[int] = set()

    def started(**_: Any) -> None:
        threads.add(threading.get_ident())

    def finished(**_: Any) -> None:
        threads.discard(threading.get_ident())

    request_started.connect(started)
    request_finished.connect(finished)
    yield threads
    request_started.disconnect(started)
    request_finished.disconnect(finished)


@pytest.fixture
def site(live_server, under_way: set[int], settings: Any, tmp_path: Path) -> Iterator[Any]:
    """Yield the server's address, which sign-in messages name. Its chain has no node unless a test configures one."""
    settings.BASE_URL = str(live_server.url)
    settings.CHAINS_FILE = chains_toml(tmp_path, DEAD_NODE, chain='explorer_url = "https://scan.example"')
    yield settings.BASE_URL
    # A closed page's last request may still be in progress. It must not see the next test's settings.
    until(lambda: not under_way, "requests of closed pages are answered")


@pytest.fixture
def open_context(browser: Browser, site: str) -> Iterator[Callable[..., BrowserContext]]:
    """Yield a function that opens a new browser profile with Playwright's options, such as `color_scheme` or
    `viewport`.
    """
    contexts: list[BrowserContext] = []
    faults: list[str] = []

    def watch(page: Page) -> None:
        page.on("pageerror", lambda error: faults.append(f"Thrown on {page.url}: {error}"))
        page.on("console", lambda message: faults.extend(_console_fault(message)))

    def requested(request: Request) -> None:
        if not request.url.startswith((f"{site}/", "data:", "blob:")):
            faults.append(f"A request to another host: {request.url}")

    def open_context(**options: Any) -> BrowserContext:
        context = browser.new_context(base_url=site, **{"viewport": WIDE} | options)
        context.set_default_timeout(TIMEOUT)
        context.on("page", watch)
        context.on("request", requested)
        contexts.append(context)
        return context

    yield open_context
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture
def context(open_context: Callable[..., BrowserContext]) -> BrowserContext:
    return open_context()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """Return a wide page for a visitor who is not signed in."""
    return context.new_page()


@pytest.fixture
def wallet() -> Wallet:
    """Return Alice's wallet. `wallet.put_into(context)` installs it."""
    return Wallet()


@pytest.fixture
def sign_in_as(site: str) -> Callable[..., User]:
    """Return a function that signs a browser profile in without a wallet, and gives the user a first key."""

    def sign_in_as(context: BrowserContext, address: str = ALICE.address) -> User:
        user = User.objects.for_address(address)
        keys.issue_first(user)
        session = SessionStore()
        session[SESSION_KEY] = str(user.pk)
        session[BACKEND_SESSION_KEY] = project_settings.AUTHENTICATION_BACKENDS[0]
        session[HASH_SESSION_KEY] = user.get_session_auth_hash()
        session.create()
        assert session.session_key
        context.add_cookies([{"name": project_settings.SESSION_COOKIE_NAME, "value": session.session_key, "url": site}])
        return user

    return sign_in_as


@pytest.fixture
def alice(context: BrowserContext, sign_in_as: Callable[..., User]) -> User:
    """Sign Alice in to the test's browser profile."""
    return sign_in_as(context)


@dataclass
class Stage:
    """The settings of the server, which a test may change, and a chain that starts when a test requests it."""

    settings: Any
    folder: Path
    patch: pytest.MonkeyPatch
    start_chain: Callable[[], DevChain]

    def chain(self) -> DevChain:
        chain = self.start_chain()
        chain.mine(5)
        self.settings.CHAINS_FILE = chains_toml(self.folder, chain.url)
        forget_chains()
        deploy_on(chain)
        return chain


@pytest.fixture
def stage(site: str, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with ExitStack() as running:
        yield Stage(settings, tmp_path, monkeypatch, lambda: running.enter_context(DevChain()))


@pytest.fixture
def service(stage: Stage) -> DevChain:
    """Return a chain that mines a block for each transaction, connected to the server."""
    return stage.chain()


def axe_violations(page: Page, rule: str | None = None) -> list[str]:
    """Return axe-core's violations of one rule; or of WCAG 2.2 A and AA and of its best practices. Give examples."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(_AXE.read_text())
    rules = {"type": "rule", "values": [rule]} if rule else {"type": "tag", "values": _WCAG}
    options = json.dumps({"runOnly": rules, "resultTypes": ["violations"]})
    result = page.evaluate(f"axe.run(document, {options})")
    return [
        f"{violation['id']}: {violation['help']}: {[node['html'][:200] for node in violation['nodes'][:3]]}"
        for violation in result["violations"]
    ]


def faults_for_anybody(page: Page) -> list[str]:
    """Return the page's faults in light and dark colours, wide and at 320 px. Leave the page light and wide."""
    faults = []
    for scheme, size in [("dark", NARROW), ("dark", WIDE), ("light", NARROW), ("light", WIDE)]:
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # a literal type
        page.set_viewport_size(size)  # type: ignore[arg-type]  # a typed dictionary of the same keys
        new_faults = axe_violations(page) + (["It must be scrolled sideways."] if overflows(page) else [])
        faults += [f"{scheme}, {size['width']} px: {fault}" for fault in new_faults]
    return faults


@contextmanager
def written_in(page: Page, font: str) -> Iterator[None]:
    """Show all texts of the page in a font, as on a machine that has no other."""
    set_fonts = "font => ['--sans', '--mono'].forEach(name => document.documentElement.style.setProperty(name, font))"
    page.evaluate(set_fonts, font)
    yield
    page.evaluate(set_fonts, "")


def overflows(page: Page) -> bool:
    """Return whether the page scrolls sideways (WCAG 2.2, 1.4.10 Reflow)."""
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


def sent(responses: Iterable[Response]) -> int:
    """Return the number of bytes sent, compressed where the server compresses. It compresses no pages of signed-in
    users and no uncollected files.
    """
    return sum(
        len(gzip.compress(response.body()))
        if "/static/" in response.url or response.headers.get("content-type", "").startswith("text/html")
        else response.request.sizes()["responseBodySize"]
        for response in responses
    )


def _console_fault(message: ConsoleMessage) -> list[str]:
    # Chromium and htmx report every failed or replaced request. The test decides how the page must react.
    htmx_events = (
        "Response Status Error Code",
        "htmx:afterRequest",
        "htmx:sendError",
        "htmx:sendAbort",
        "htmx:timeout",
    )
    reports = ("Failed to load resource", *htmx_events)
    if message.type != "error" or message.text.startswith(reports):
        return []
    with suppress(Error):
        return [f"Console of {message.page.url if message.page else '?'}: {message.text}"]
    return [f"Console: {message.text}"]
