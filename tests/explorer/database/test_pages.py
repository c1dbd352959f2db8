"""The example on the home page, identifiers and methods in requests, and error pages without details."""

import re
import time
from datetime import timedelta
from html import unescape

import pytest
from django.templatetags.static import static
from django.test import Client
from django.utils import timezone

from accounts.models import User
from config.configured_chains import forget_chains
from queries.models import Batch, Block
from tests.explorer import batches
from tests.factories import client_of
from tests.service import ALICE, BOB, chains_toml, header

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


def test_the_home_page_has_an_example_that_its_reader_may_see(settings):
    """The example is the visitor's own batch, or one from the public list, or the documentation's."""
    batches.finish(batch := batches.a_batch())
    batches.a_batch(block=13)
    batches.finish(batches.a_batch(ALICE, BOB, block=14))
    documented = "deposit contract held"
    assert batches.path(batch) in (html := client_of(ALICE).get("/").text)
    assert "123,456,789.0123" in html
    assert documented not in html
    for reader in (client_of(BOB), Client()):
        settings.PUBLIC_BATCH_LIST = False
        assert batch.pk not in (html := reader.get("/").text)
        assert documented in html
        settings.PUBLIC_BATCH_LIST = True
        assert batches.path(batch) in reader.get("/").text


def test_the_home_page_has_a_typical_example_with_the_line_of_solidity_that_reads_it():
    line = "uint256 value = uint256(registry.accountField({}, {}, 1));"
    assert line.format("0x00000000219ab540356cBB839Cbe05303d7705Fa", 21925176) in Client().get("/").text
    for block, seconds in ((12, 2), (13, 90_000), (14, 40)):
        batches.finish(batch := batches.a_batch(props=["BALANCE"], block=block))
        now = timezone.now()
        Batch.objects.filter(pk=batch.pk).update(created_at=now - timedelta(seconds=seconds), finished_at=now)
    assert line.format(ALICE, 14) in client_of(ALICE).get("/").text


def test_the_example_of_a_slot_reads_the_part_that_its_name_states():
    name = {"slot": "2", "keys": [ALICE], "part": {"offset": 0, "size": 255, "form": "unsigned"}}
    batches.finish(batches.batch_at(block_12={"accounts": {BOB: {"slots": [name]}}}))
    html = unescape(client_of(ALICE).get("/").text)
    line = (
        rf"uint256 value = uint256\(registry.accountStorageSlotValues\({BOB}, 12, 0x[0-9a-f]+\)\) & \(2 \*\* 255 - 1\);"
    )
    assert re.search(line, html)


def test_programs_that_ask_unseen_get_the_icon_and_which_pages_are_no_use_to_a_search():
    icon = Client().get("/favicon.ico")
    assert (icon.status_code, icon.headers["Location"]) == (302, static("favicon.svg"))
    robots = Client().get("/robots.txt")
    assert robots.headers["Content-Type"].startswith("text/plain")
    assert "Disallow: /explorer\n" in robots.text


SCAN = "https://scan.example"


def links(client: Client, address: str) -> set[str]:
    """Return the links in a page's main part, without those into the page itself."""
    html = client.get(address, headers={"accept": "text/html"}).text
    return set(re.findall(r'<a [^>]*?href="([^"#]+)"', html.partition("<main")[2]))


def test_accounts_blocks_transactions_and_contracts_are_links_on_every_page(settings, tmp_path):
    batches.finish(batch := batches.a_batch(props=["BALANCE"]))
    batch.queries.get().steps.update(transaction_hash=batches.TRANSACTION)
    Block.objects.update(hash=batches.HASH)
    log = batches.batch_at(block_12={"transactions": {batches.TRANSACTION: {"props": ["STATUS"]}}})
    alice, page = client_of(ALICE), batches.path(batch)
    account, block = {f"/facts?account={ALICE}", f"{SCAN}/address/{ALICE}"}, {f"{SCAN}/block/12"}
    contracts = {f"{SCAN}/address/{batches.REGISTRY}", f"{SCAN}/address/{batches.BLOCK_HASH_SOURCE}"}
    sent, registry = {f"{SCAN}/tx/{batches.TRANSACTION}"}, {f"{SCAN}/address/{batches.REGISTRY}"}
    named = {
        page: account | block | contracts | sent | {f"{SCAN}/block/{batches.HASH}"},
        "/explorer": account | block | sent | {page},
        "/dashboard": account | block | sent | {page},
        "/": account | block | {page},
        f"/facts?account={ALICE}": account | block | sent | registry | {page},
        "/facts?block=12": account | block | sent | registry | {page},
        "/chains": contracts,
        batches.path(log): sent | block,
    }
    for address, expected in named.items():
        assert expected <= links(alice, address), address
    text = alice.get(page).text
    for copied in (ALICE, "12", batches.HASH, batches.TRANSACTION, batches.REGISTRY, batches.BLOCK_HASH_SOURCE):
        assert f'data-copy="{copied}"' in text
    settings.CHAINS_FILE = chains_toml(tmp_path, batches.DEAD_NODE)
    forget_chains()
    assert not [link for address in named for link in links(alice, address) if link.startswith("http")]


def test_the_footer_leads_to_documentation_and_source_and_tells_the_version(settings):
    def footer() -> str:
        return str(Client().get("/").text.partition("<footer")[2])

    assert f"Version {settings.VERSION}" in footer()
    assert "href" not in footer()
    settings.SOURCE_URL = "https://forge.example/bqs"
    for version, place in (("1.2.3", "v1.2.3"), ("1.2.4.dev0", "main")):
        settings.VERSION = version
        assert f'href="https://forge.example/bqs/tree/{place}/docs"' in footer()
    assert 'href="https://forge.example/bqs"' in footer()


def test_a_host_that_is_not_ours_gets_a_page_of_ours():
    response = Client().get("/", headers={"host": "evil.example<b>"})
    assert response.status_code == 400
    assert "understood" in response.text
    assert "and not at evil.example&lt;b&gt;." in response.text


@pytest.mark.parametrize("written", [str.lower, str.title])
def test_an_identifier_is_found_in_any_case_and_told_in_capitals(written):
    batches.finish(batch := batches.a_batch())
    key, other, own = header(batch.api_key), written(batch.pk), client_of(ALICE)
    pages = [f"/explorer/query/{other}{more}" for more in ("", "/1", ".json", "/request.json", "/facts.csv")]
    pages += [f"/batch-queries/{other}", f"/new-batch?from={other}", f"/explorer?before={other}"]
    for page in (*pages, f"/batch-queries?cursor={other}", f"/webhook-deliveries?internalId={other}"):
        answer = own.get(page, headers=key)
        assert answer.status_code == 200, page
        # The search box and the list's links have the identifier in capitals, too.
        assert other not in answer.getvalue().decode(), page
    assert Client().get("/batch-query-status", {"batchQueryId": other}, headers=key).json() == {"queryStatus": "DONE"}


@pytest.mark.long
def test_head_is_answered_as_get_without_a_body_and_waits_for_nothing():
    batch = batches.a_batch()
    key, own, status = header(batch.api_key), client_of(ALICE), f"/batch-query-status?batchQueryId={batch.pk}"
    api = ["/chain-connections", "/batch-queries", f"/batch-queries/{batch.pk}", status, "/webhook-deliveries"]
    pages = ["/", "/keys", "/dashboard/log", "/dashboard/webhooks/rotate", batches.path(batch), "/sign-in"]
    for address in (*api, f"/facts?account={ALICE}", "/healthz", "/chains.json", f"{batches.path(batch)}.json", *pages):
        head, get = own.head(address, headers=key), own.get(address, headers=key)
        assert (head.status_code, head.content) == (get.status_code, b""), address
        assert head.headers["Content-Type"] == get.headers["Content-Type"]
    assert Client().head("/batch-queries").status_code == 401
    refused = own.head("/submit-batch-query", headers=key)
    assert (refused.status_code, refused.headers["Allow"]) == (405, "POST")
    assert Client().post("/chain-connections").headers["Allow"] == "GET, HEAD"
    began = time.monotonic()
    assert own.head(f"{status}&wait=25", headers=key).status_code == 200
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("address", ["/", "/nowhere", "/dashboard", "/batch-queries", "/explorer/query/a%00/1"])
def test_nul_breaks_nothing(address, settings):
    # A quoted cookie may contain octal escapes.
    for name in (settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME, "other"):
        answer = Client().get(address, headers={"cookie": rf'{name}="{"a" * 32}\000"'})
        assert answer.status_code == Client().get(address).status_code < 500


@pytest.mark.parametrize("address", ["/sign-in/verify", "/dashboard/keys", "/admin/", "/nowhere"])
def test_a_form_is_small(address):
    parts = "--x\r\nContent-Disposition: form-data; name=a\r\n\r\nb\r\n--x--\r\n"
    for content, kind, status, code in (
        (b" " * 65_537, "application/json", 413, "too_large"),
        (b"a=" + b"b" * 65_536, "application/x-www-form-urlencoded", 413, "too_large"),
        (parts.encode(), "multipart/form-data; boundary=x", 415, "unsupported_media_type"),
    ):
        for accepted, told in (("application/json", status), ("text/html", 413 if kind.endswith("json") else 400)):
            answer = Client().post(address, content, content_type=kind, headers={"accept": accepted})
            assert answer.status_code == told
            assert told == 400 or answer.json()["code"] == code
    assert Client().post("/submit-batch-query", b" " * 65_537, content_type="application/json").status_code == 401


@pytest.mark.long("")
@pytest.mark.parametrize("page", ["", ".json", "/deliveries", "/deliveries/x", "/1/read", "/transactions", "/1"])
def test_no_identifier_breaks_a_page(page):
    for identifier in ("1.json", "a%00", "%00", "1%00.json", "\u212a" * 26, "%F0%9F%A6%84", "<b>", "1" * 5000):
        for reader in (Client(), client_of(ALICE)):
            assert reader.get(f"/explorer/query/{identifier}{page}").status_code in {302, 404}


@pytest.mark.parametrize(
    ("secure", "headers", "is_hidden"),
    [
        (False, {"origin": "null"}, True),
        (True, {"origin": "null"}, True),
        (True, {}, True),
        (False, {}, False),
        (True, {"origin": "https://testserver"}, False),
    ],
)
def test_a_form_without_an_origin_is_refused_with_the_cause(secure, headers, is_hidden):
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.for_address(ALICE))
    for address in ("/sign-out", "/new-batch"):
        answer = client.post(address, secure=secure, headers=headers)
        assert answer.status_code == 403
        assert ("Referrer-Policy" in answer.text and "Origin: null" in answer.text) == is_hidden
