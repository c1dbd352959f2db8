"""The home page, the error pages, and what holds for every public page."""

import re

import pytest
from django.contrib.staticfiles import finders
from django.test import Client
from django.utils import timezone

from accounts.models import User
from config.configured_chains import forget_chains
from proving.models import ChainHead
from tests.explorer.batches import SOURCE, a_batch, connect_source, deployed, finish, path
from tests.service import ALICE, BOB, chains_toml

pytestmark = pytest.mark.django_db


def test_the_home_page_has_an_example_that_its_reader_may_see(settings):
    """One's own, everybody's where everybody may list them, else the documentation's."""
    finish(batch := a_batch())
    alice, bob = (Client(), Client())
    alice.force_login(User.objects.get(address=ALICE))
    bob.force_login(User.objects.for_address(BOB))
    a_batch(block=13)
    finish(a_batch(ALICE, BOB, block=14))
    documented = "an example from the documentation"
    assert path(batch) in (html := alice.get("/").text)
    assert "123,456,789.0123" in html
    assert documented not in html
    for reader in (bob, Client()):
        assert batch.pk not in (html := reader.get("/").text)
        assert documented in html
    settings.PUBLIC_BATCH_LIST = True
    assert path(batch) in Client().get("/").text


def test_the_header_leads_to_one_s_own_pages_and_marks_the_present_one():
    alice = Client()
    alice.force_login(User.objects.for_address(ALICE))
    for url in ("/explorer", "/dashboard", "/keys"):
        assert f'<a href="{url}"' in (html := alice.get("/").text)
        assert 'aria-current="page"' not in html
        # Those that are no user's own are in the header and, where it is narrow, in its menu.
        assert set(re.findall(r'<a href="([^"]+)" aria-current="page"', alice.get(url).text)) == {url}
    assert "/dashboard" not in (html := Client().get("/nowhere").text)
    assert '<a href="/sign-in">Sign in</a>' in html


def test_the_first_query_leaves_the_fee_to_fill_in_where_gas_has_a_price(settings, tmp_path):
    filled_in, asked_for = "&quot;fee&quot;: &quot;0&quot;", "&quot;fee&quot;: &quot;&lt;fee in wei&gt;&quot;"
    html = Client().get("/").text
    assert (filled_in in html, asked_for in html, "The fee is the most" in html) == (True, False, False)
    settings.CHAINS_FILE = chains_toml(tmp_path, "http://127.0.0.1:1", chain="test_network = false")
    forget_chains()
    html = Client().get("/").text
    assert (filled_in in html, asked_for in html, "The fee is the most" in html) == (False, True, True)


def test_the_first_query_asks_another_chain_for_what_is_there_and_final(settings, tmp_path):
    connect_source(tmp_path)
    # The connection of the other chain comes first.
    tables, _, connections = settings.CHAINS_FILE.read_text().partition("[[connections]]")
    of_destination, _, of_source = connections.partition("[[chains]]")
    settings.CHAINS_FILE.write_text(f"{tables}[[chains]]{of_source}[[connections]]{of_destination}")
    forget_chains()
    deployed()
    html = Client().get("/").text
    assert "&quot;5&quot;: {&quot;block:&lt;number&gt;&quot;" in html
    assert "&lt;address&gt;" in html
    ChainHead.objects.create(chain_id=SOURCE, number=100, final=36, seen_at=timezone.now())
    assert "&quot;block:36&quot;" in Client().get("/").text


def test_a_host_that_is_not_ours_gets_a_page_of_ours():
    response = Client().get("/", headers={"host": "evil.example"})
    assert response.status_code == 400
    assert "understood" in response.text
    assert "evil.example" not in response.text


def test_an_error_of_ours_gets_a_page_that_tells_nothing_of_it(monkeypatch, caplog):
    def fail(*_arguments, **_more):
        raise RuntimeError("a secret detail")

    monkeypatch.setattr("explorer.batch.batch_page.read", fail)
    response = Client(raise_request_exception=False).get("/explorer/query/x")
    assert response.status_code == 500
    assert "Something went wrong here" in response.text
    assert "secret" not in response.text
    assert "a secret detail" in caplog.text


def test_a_link_to_a_batch_has_a_preview_and_a_button_that_copies_it(settings):
    settings.BASE_URL = "https://prover.example"
    batch = a_batch()
    html = Client().get(path(batch)).text
    assert f'<meta property="og:url" content="https://prover.example{path(batch)}">' in html
    assert f'data-copy="https://prover.example{path(batch)}">Copy link ' in html
    title = "Balance of 0xf39F…2266 at block 12 of Development chain"
    assert f'<meta property="og:title" content="{title}">' in html
    assert 'og:description" content="The batch is RECEIVED: 0 of 4 steps completed.">' in html
    (picture,) = re.findall('<meta property="og:image" content="https://prover.example/static/([^"]+)">', html)
    assert finders.find(picture)
    finish(batch)
    html = Client().get(path(batch)).text
    assert f'<meta property="og:title" content="{title}: 123,456,789.0123 ETH">' in html
    assert "Confirmed: the facts registry of Development chain holds exactly the proven values." in html
    assert '<meta property="og:title" content="Batch Query Service">' in Client().get("/").text
