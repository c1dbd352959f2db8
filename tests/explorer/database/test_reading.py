"""A fact is read from the chain on a batch's page."""

import re
import socket
import time
import zlib
from typing import Any

import pytest
from django.test import Client

from devnet.devchain import DevChain
from proving.models import BlockTrie
from queries.models import Batch, Block, StepKind
from tests.explorer.batches import a_batch, accept, batch_at, finish, path, read_files, receipt, reopen, word
from tests.explorer.pages import text_of
from tests.service import ALICE, BOB, a_key, chains_toml, request, submit, work_until_done

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


def read(batch: Batch, number: int = 1, *, htmx: bool = False) -> Any:
    return Client().post(f"{path(batch)}/{number}/read", headers={"hx-request": "true"} if htmx else {})


@pytest.mark.long
def test_reading_a_batch_shows_the_values_the_block_and_that_the_registry_holds_them(service: DevChain):
    batch = work_until_done(submit(a_key(), request(BOB, block=3, props=["BALANCE", "NONCE"])), service)
    balance = int(service.rpc("eth_getBalance", BOB, "0x3"), 16)
    head = service.head()
    fragment = read(batch, htmx=True).text
    assert re.search(rf"Read at block <span[^>]*>{head} .+\sof\s+Development chain \(31337\):", fragment, re.DOTALL)
    assert "the registry holds exactly the proven values." in fragment
    assert f"0x{balance:064x}" in fragment
    assert f"{balance // 10**18} ETH" in fragment
    assert "<main" not in fragment
    page = read(batch)  # as without JavaScript
    assert page.status_code == 200
    assert f"Read at block {head}" in text_of(page.text)
    assert "<main" in page.text


@pytest.mark.long
def test_of_many_slots_it_reads_those_that_the_page_shows(service: DevChain):
    block = service.head()
    batch = batch_at(**{f"block_{block}": {"accounts": {ALICE: {"slots": [hex(slot) for slot in range(60)]}}}})
    work_until_done(batch, service)
    html = Client().get(f"{path(batch)}/1", {"slots": "2"}).text
    action = re.search(r'<form method="post" action="([^"]+/read[^"]*)"', html)
    assert action
    text = " ".join(Client().post(action[1]).text.split())
    assert "Slots 51 to 60 of 60 were read." in text
    assert re.findall(r"<dt>slot (0x\w+)</dt>", text) == [hex(slot) for slot in range(50, 60)]


@pytest.mark.long
def test_reading_a_batch_shows_that_the_chain_has_lost_its_facts(service: DevChain):
    block = service.head()
    service.mine(3)
    batch = work_until_done(submit(a_key(), request(BOB, block=block)))
    service.rpc("anvil_reorg", 1, [])
    text = read(batch).text
    assert "the registry does not hold the proven values." in text
    assert "not proven" in text


def test_a_node_that_is_down_is_said_in_a_sentence():
    batch = finish(a_batch())
    response = read(batch)
    assert response.status_code == 200
    assert "The chain could not be read." in response.text
    assert "127.0.0.1:1" in response.text


@pytest.mark.long
def test_a_node_that_hangs_is_not_waited_for_as_long_as_a_worker_would(settings, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as never_answers:
        settings.CHAINS_FILE = chains_toml(tmp_path, f"http://127.0.0.1:{never_answers.getsockname()[1]}")
        batch = finish(a_batch())
        begun = time.monotonic()
        assert "The chain could not be read." in read(batch).text
        assert time.monotonic() - begun < 8


def test_reading_too_often_is_refused_in_a_sentence_until_the_next_minute():
    batch = finish(a_batch())
    assert read(batch).status_code == 200
    read_files()
    assert "Your network has sent too many reads. Try again in a minute." in read(batch).text
    assert (read(batch).status_code, 1 <= int(read(batch).headers["Retry-After"]) <= 60) == (429, True)
    for what in ("request.json", "bundle.json", "1/bundle.json", "facts.csv"):
        refused = Client().get(f"{path(batch)}/{what}")
        assert (refused.status_code, refused.json()["code"], "Retry-After" in refused.headers) == (
            429,
            "too_many_requests",
            True,
        )
        assert Client(REMOTE_ADDR="192.0.2.2").get(f"{path(batch)}/{what}").status_code in {200, 404}
    fragment = read(batch, htmx=True)
    assert (fragment.status_code, "too many reads" in fragment.text) == (200, True)


def of_slots() -> Batch:
    return finish(batch_at(block_12={"accounts": {ALICE: {"slots": [word(number) for number in range(2_000)]}}}))


def of_entries() -> Batch:
    batch = finish(batch_at(block_12={"transactions": {str(index): {"props": ["STATUS"]} for index in range(20)}}))
    receipts = zlib.compress((len(receipt()).to_bytes(4) + receipt()) * 20)
    BlockTrie.objects.create(block=Block.objects.get(), root=5, count=12_000, compressed=receipts)
    return batch


# The number of reads that an answer counts as.
READS = {
    (of_slots, ".json"): 2,
    (of_slots, "/request.json"): 1,
    (of_slots, "/facts.csv"): 3,
    (of_slots, "/bundle.json"): 3,
    (of_slots, "/1/bundle.json"): 3,
    (of_entries, ".json"): 1,
    (of_entries, "/facts.csv"): 5,
    (of_entries, "/bundle.json"): 5,
    (of_entries, "/1/bundle.json"): 4,
}


@pytest.mark.long
@pytest.mark.parametrize("make", [of_slots, of_entries])
def test_a_large_answer_counts_as_several_reads_of_its_network_and_a_small_one_of_a_page_as_none(make):
    batch, small = make(), a_batch()
    for at, (what, reads) in enumerate((what, reads) for (of, what), reads in READS.items() if of is make):
        for used, status in ((30 - reads, 200), (31 - reads, 429)):
            reader = Client(REMOTE_ADDR=f"192.0.2.{2 * at + used % 2}")
            for _ in range(used):
                reader.get("/explorer/query/none/request.json")
            answer = reader.get(f"{path(batch)}{what}")
            assert (what, answer.status_code) == (what, status)
        assert answer.json()["code"] == "too_many_requests"
        assert int(answer.headers["Retry-After"]) > 0
        assert reader.get(f"{path(small)}.json").status_code == 200


def test_nothing_is_read_before_its_query_is_completed():
    batch = a_batch()
    assert read(batch).status_code == 404
    accept(batch)
    assert read(batch).status_code == 404
    finish(batch)
    assert read(batch, 2).status_code == 404
    reopen(batch, StepKind.FACTS_PROVEN)
    assert read(batch).status_code == 404


@pytest.mark.parametrize("parameters", ["", "?slots=2"])
def test_going_to_the_address_of_a_reading_again_leads_to_the_query(parameters):
    batch = finish(a_batch())
    response = Client().get(f"{path(batch)}/1/read{parameters}")
    assert (response.status_code, response.headers["Location"]) == (302, f"{path(batch)}/1{parameters}")


def test_reading_needs_a_post_from_our_own_page():
    batch = finish(a_batch())
    strict = Client(enforce_csrf_checks=True)
    assert strict.post(f"{path(batch)}/1/read").status_code == 403
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', strict.get(path(batch)).text)
    assert token
    assert strict.post(f"{path(batch)}/1/read", {"csrfmiddlewaretoken": token[1]}).status_code == 200
