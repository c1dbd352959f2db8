import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Route, expect

from accounts.models import AccountEvent, EventKind, User
from tests.accounts.wallets import ALICE, BOB, sign
from tests.browser.wallet import BUSY, DECLINED, NO_SUCH_CHAIN, said


def open_sign_in(page: Page, wallet: str = "Test Wallet") -> None:
    page.goto("/sign-in")
    expect(page.get_by_role("button", name=f"Sign in with {wallet}")).to_be_enabled()


def press(page: Page, wallet: str = "Test Wallet") -> None:
    page.get_by_role("button", name=f"Sign in with {wallet}").click()


# --- Success ----------------------------------------------------------------------------------------------------------


@pytest.mark.story
def test_a_wallet_signs_in(page, context, wallet):
    wallet.put_into(context)
    open_sign_in(page)
    assert page.locator(".wallet img").get_attribute("src").startswith("data:image/svg+xml,")
    press(page)
    expect(page).to_have_url(re.compile("/dashboard$"))
    expect(page.get_by_role("main")).to_contain_text(ALICE.address)
    assert wallet.asked == ["eth_requestAccounts", "eth_chainId", "personal_sign"]
    signed_in, key_made = AccountEvent.objects.order_by("pk")
    assert signed_in.client_network == key_made.client_network == "127.0.0.0/24"


@pytest.mark.long
def test_a_wallet_on_another_chain_signs_for_the_first_one_here_and_hears_so(page, context, wallet):
    wallet.put_into(context)
    wallet.chain_id = 7
    wallet.refuses["personal_sign"] = DECLINED
    open_sign_in(page)
    press(page)
    said(page, "You declined to sign")
    said(page, "is on chain 7, which this service doesn't use; the message names Development chain (31337) instead")

    switch = page.get_by_role("button", name="Switch Test Wallet to Development chain (31337)")
    wallet.refuses["wallet_switchEthereumChain"] = NO_SUCH_CHAIN
    switch.click()
    said(page, "doesn't have that chain")

    press(page)
    said(page, "You declined to sign")
    wallet.refuses.clear()
    switch.click()
    expect(page).to_have_url(re.compile("/dashboard$"))
    assert wallet.chain_id == 31337


@pytest.mark.long
def test_the_keyboard_alone_signs_in_and_out(page, context, wallet):
    wallet.put_into(context)
    open_sign_in(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Sign in with Test Wallet")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/dashboard$"))
    menu, sign_out = page.locator(".menu > summary"), page.get_by_role("button", name="Sign out", exact=True)
    for target in (menu, sign_out):
        for _ in range(15):  # the links of the header and of the menu come first
            page.keyboard.press("Tab")
            if target.evaluate("one => one === document.activeElement"):
                break
        expect(target).to_be_focused()
        if target is menu:
            page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/sign-in$"))


# --- Several wallets, late ones and cancelled ones --------------------------------------------------------------------

# A second wallet that announces itself late, or exists only as `window.ethereum`.
ANNOUNCED_LATE = """provider => setTimeout(() => dispatchEvent(new CustomEvent("eip6963:announceProvider", {
    detail: {info: {uuid: "late", name: "Other wallet", icon: "", rdns: "example.other"}, provider}})), 1000)"""
# It answers each announcement of another wallet by its own, with the same uuid.
OF_THE_SAME_UUID = """provider => addEventListener("eip6963:announceProvider", ({detail: {info}}) => {
    if (info.name !== "Other wallet") dispatchEvent(new CustomEvent("eip6963:announceProvider", {
        detail: {info: {...info, name: "Other wallet"}, provider}}));
})"""
UNANNOUNCED = "provider => { window.ethereum = provider; }"


@pytest.mark.long
@pytest.mark.parametrize(
    ("announcement", "name"),
    [(ANNOUNCED_LATE, "Other wallet"), (OF_THE_SAME_UUID, "Other wallet"), (UNANNOUNCED, "Browser wallet")],
    ids=["late", "same uuid", "unannounced"],
)
def test_a_wallet_that_is_late_unannounced_or_of_the_same_uuid_signs_in_beside_another(
    page, context, wallet, announcement, name
):
    wallet.put_into(context)
    context.add_init_script(f"({announcement})({{ request: window.ethereum.request }})")
    open_sign_in(page)
    press(page, name)
    expect(page).to_have_url(re.compile("/dashboard$"))


@pytest.mark.long
def test_a_page_prints_dark_ink_on_white_in_the_dark_theme(page, context, wallet):
    wallet.put_into(context)
    open_sign_in(page)
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.emulate_media(media="print", color_scheme="dark")
    colours = "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    assert page.evaluate(colours) == ["rgb(21, 24, 29)", "rgb(255, 255, 255)"]


@pytest.mark.parametrize("method", ["eth_requestAccounts", "eth_chainId", "personal_sign"])
def test_after_cancel_nobody_is_signed_in_whatever_the_wallet_answers_later(page, context, wallet, method):
    wallet.put_into(context)
    context.add_init_script(
        f"window.heldMethod = '{method}'; window.whenHeld = new Promise((resolve) => {{ window.isHeld = resolve; }});"
    )
    open_sign_in(page)
    press(page)
    page.evaluate("window.whenHeld")
    page.get_by_role("button", name="Cancel").click()
    said(page, "Cancelled. Nothing was signed in.")
    before = len(wallet.asked)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url.rpartition("/")[2]))
    page.evaluate("window.heldMethod = ''; window.approve();")
    # The second attempt ends after the first would have.
    press(page)
    expect(page).to_have_url(re.compile("/dashboard$"))
    assert wallet.asked[before:] == ["eth_requestAccounts", "eth_chainId", "personal_sign"]
    assert requests[:3] == ["message", "verify", "dashboard"]
    assert AccountEvent.objects.filter(kind=EventKind.SIGNED_IN).count() == 1


LEFT = {
    "another form is sent": "document.getElementById('manual').dispatchEvent(new Event('submit', {bubbles: true}))",
    "the page is kept for the way back": "dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}))",
}


@pytest.mark.long
@pytest.mark.parametrize("cancels", [None, *LEFT])
def test_only_the_wallet_that_was_chosen_last_signs_in(page, context, wallet, cancels):
    """The first wallet approves while the second one waits. The wallets have different accounts."""
    wallet.put_into(context)
    context.expose_function("otherSigns", lambda data: sign(bytes.fromhex(data[2:]).decode(), BOB))
    context.add_init_script(
        f"""window.heldMethod = "personal_sign";
        window.whenHeld = new Promise((resolve) => {{ window.isHeld = resolve; }});
        window.whenOtherHeld = new Promise((resolve) => {{ window.isOtherHeld = resolve; }});
        const held = () => new Promise((resolve) => {{ window.approveOther = resolve; window.isOtherHeld(); }});
        ({UNANNOUNCED})({{ request: async ({{ method, params }}) => method === "eth_requestAccounts" ? ["{BOB.address}"]
            : method === "eth_chainId" ? "0x7a69" : (await held(), window.otherSigns(params[0])) }});"""
    )
    open_sign_in(page)
    press(page)
    page.evaluate("window.whenHeld")
    if cancels:
        page.evaluate(LEFT[cancels])
    else:
        page.get_by_role("button", name="Cancel").click()
    said(page, "Cancelled. Nothing was signed in.")
    press(page, "Browser wallet")
    page.evaluate("window.whenOtherHeld")
    posted: list[str] = []
    page.on("request", lambda request: posted.append(request.url))
    page.evaluate("window.approve()")
    page.evaluate("window.approveOther()")
    expect(page).to_have_url(re.compile("/dashboard$"))
    expect(page.get_by_role("main")).to_contain_text(BOB.address)
    assert [url for url in posted if "/sign-in/" in url] == [f"{page.url.removesuffix('/dashboard')}/sign-in/verify"]


def test_nothing_can_be_cancelled_once_the_service_has_the_signature(page, context, wallet):
    held: list[Route] = []
    wallet.put_into(context)
    context.route("**/sign-in/verify", lambda route: held.append(route))  # noqa: PLW0108 (the driver wants a function)
    open_sign_in(page)
    with page.expect_request("**/sign-in/verify"):
        press(page)
    said(page, "Checking the signature …")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    held[0].continue_()
    expect(page).to_have_url(re.compile("/dashboard$"))


@pytest.mark.long
def test_a_form_sends_the_newest_token_of_this_service_alone(page, context, site, settings):
    page.goto("/sign-in")
    # A sign-in in another tab replaces the token. Another program on this host has a token, too.
    for name, value in ((settings.CSRF_COOKIE_NAME, "n" * 32), ("csrftoken", "f" * 32)):
        context.add_cookies([{"name": name, "value": value, "url": site}])
    page.get_by_label("Your address").fill(ALICE.address)
    page.get_by_role("button", name="Show the message to sign").click()
    expect(page.locator("#message")).to_have_value(re.compile("wants you to sign in"))


# --- Failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_wallet_without_cookies_or_an_origin_is_told_the_cause(page, context, wallet, settings, site):
    def sent_with(**fields: str) -> Callable[[Route], None]:
        def send(route: Route) -> None:
            kept = {name: value for name, value in route.request.headers.items() if name not in {"origin", "referer"}}
            route.fulfill(response=route.fetch(headers=kept | fields))

        return send

    def press_again(sentence: str) -> None:
        open_sign_in(page)
        press(page)
        said(page, sentence)
        expect(page.get_by_role("button", name="Sign in with Test Wallet")).to_be_focused()

    wallet.put_into(context)
    # An extension or a proxy may take the fields away. The service only sees the scheme that its proxy reports.
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    for fields in ({"origin": "null"}, {"x-forwarded-proto": "https"}):
        context.route("**/sign-in/message", sent_with(**fields))
        press_again("Your browser sent Origin: null, or neither Origin nor Referer, so the service can't see")
        context.unroute("**/sign-in/message")
    context.route("**/sign-in/message", sent_with(origin="https://elsewhere.example"))
    press_again(f"This service is at {site}. Open it there, then try again.")
    context.unroute("**/sign-in/message")

    # A browser that refuses cookies has none when it sends.
    open_sign_in(page)
    context.clear_cookies()
    press(page)
    said(page, "If this keeps happening, your browser may refuse cookies.")
    # The cookie of an earlier session.
    open_sign_in(page)
    context.add_cookies([{"name": settings.CSRF_COOKIE_NAME, "value": "n" * 32, "url": site}])
    press(page)
    said(page, "This page has been open for too long.")
    assert not User.objects.exists()


@pytest.mark.long
def test_a_wallets_refusal_is_explained_and_sign_in_can_be_tried_again(page, context, wallet):
    wallet.put_into(context)
    open_sign_in(page)
    for method, error, sentence in (
        ("eth_requestAccounts", DECLINED, "You declined in Test Wallet. Nothing happened"),
        ("eth_requestAccounts", BUSY, "still waits for your answer to an earlier request"),
        ("eth_requestAccounts", (4100, "Unauthorized"), "It may be locked: unlock it"),
        ("eth_chainId", (4900, "Disconnected"), "has no connection to its chain"),
        ("personal_sign", DECLINED, "You declined to sign the message, so you are not signed in."),
        ("personal_sign", (4200, "No"), "can't do this (personal_sign)"),
        ("personal_sign", (-32603, "Internal <i>error</i>"), "refused: “Internal <i>error</i>”"),
    ):
        wallet.refuses = {method: error}
        press(page)
        said(page, sentence)
        expect(page.get_by_role("button", name="Sign in with Test Wallet")).to_be_focused()
    wallet.refuses.clear()
    press(page)
    expect(page).to_have_url(re.compile("/dashboard$"))


@pytest.mark.long
def test_a_message_of_another_domain_is_refused(page, context, wallet, site):
    def altered(route: Route) -> None:
        answer = route.fetch()
        message = answer.json()["message"].replace(site.removeprefix("http://"), "evil.example", 1)
        route.fulfill(response=answer, json={"message": message})

    wallet.put_into(context)
    context.route("**/sign-in/message", altered)
    open_sign_in(page)
    press(page)
    said(page, "The message was not made by this service, or was changed.")
    assert not User.objects.exists()
    page.goto("/dashboard")
    expect(page).to_have_url(re.compile("/sign-in"))
