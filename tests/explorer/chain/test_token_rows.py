"""Rows of the form about tokens: the slot that is searched for, and the batch that proves it."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.test import Client

from accounts.models import ThrottleCount
from config.configured_chains import forget_chains
from devnet.devchain import DevChain
from queries.models import Batch
from tests import chain_fixtures, deployed, names
from tests.chains.lying_node import between, error
from tests.explorer.batch_forms import faults_in, filled, form, post, request_of, values
from tests.explorer.pages import text_of
from tests.proving import tokens
from tests.service import ALICE, BOB, chains_toml, done, header, reconfigure

pytestmark = [pytest.mark.django_db, pytest.mark.outside, pytest.mark.long]

_deployed: list[tokens.Deployed] = []
shared_chain = chain_fixtures.chain_fixture(lambda chain: _deployed.append(tokens.deploy(chain)))


@pytest.fixture
def chain(shared_chain: DevChain, settings, tmp_path) -> DevChain:
    settings.CHAINS_FILE = chains_toml(tmp_path, shared_chain.url)
    return shared_chain


@pytest.fixture
def alice(key, alice) -> Client:
    signed_in: Client = alice
    return signed_in


CONTRACT_1155 = f"0x{'1155':0>40}"
# Tokens that compute the balance.
WITHOUT_SLOT = {"Rebasing", "Sum"}


def row(token: str, kind: str = "token", holder: str = ALICE, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "token": _deployed[-1].addresses.get(token, token), "holder": holder, **more}


def searched(client: Client, token: str, kind: str = "token", **more: Any) -> str:
    # The limit has its own test.
    ThrottleCount.objects.all().delete()
    html = post(client, "find-0", row(token, kind, **more))
    is_found = token not in WITHOUT_SLOT
    assert ("Found the slot of row 1. Nothing is submitted yet." in html) is is_found
    assert ("Row 1: no single slot has the answer." in html) is not is_found
    return html


def data_of_search(key: Any, token: str, signature: str) -> Any:
    body = {
        "sourceChainId": "31337",
        "contract": _deployed[-1].addresses[token],
        "signature": signature,
        "arguments": [ALICE],
    }
    answer = Client().post("/find-slots", body, content_type="application/json", headers=header(key))
    return answer.json()["batch"]["data"]["31337"]


@pytest.mark.parametrize("token", ["Token", "Vyper 0.4.3", "behind proxy"])
def test_a_token_balance_is_proven_by_the_slot_that_is_found(chain, alice, key, token):
    deployed.deploy_on(chain)
    html = searched(alice, token)
    said = text_of(html)
    assert "1001" in said
    # These Vyper tokens have no `decimals()`.
    symbol = "NEW" if token == "Token" else ""
    units = f"0.000000000000001001 {symbol} if divided by 10 18 : a hint".replace("  ", " ")
    assert (units in said) is not token.startswith("Vyper")
    assert ("The token calls itself NEW: any token may do so." in said) is bool(symbol)
    # Names of tokens without a symbol are the row's kind.
    assert (f"{symbol} balance: 0xf39F" if symbol else "Token balance: 0xf39F") in said
    assert "The word of this slot is the answer, and no other slot changes it." in said
    assert ("The token is a proxy" in said) is (token == "behind proxy")
    ((block, of_search),) = data_of_search(key, token, "balanceOf(address)").items()
    assert request_of(alice, filled(html))["data"]["31337"] == {"latest": of_search}
    assert f"At block {block.removeprefix('block:')}" in said
    estimate = alice.post("/new-batch/estimate", filled(html), headers={"hx-request": "true"}).text
    assert "<dt>Transactions</dt>" in estimate
    answer = alice.post("/new-batch", filled(html) | {"do": "submit"})
    assert answer.status_code == 303, answer.text
    batch = done(Batch.objects.get(), chain)
    assert json.loads(batch.request)["data"]["31337"]["latest"] == of_search
    title = "NEW balance of 0xf39F…2266 in" if symbol else "Slot said to be balanceOf 0xf39F…2266 of"
    assert title in alice.get(answer["location"]).text
    # A batch that is filled in again has the same names of slots.
    again = request_of(alice, filled(alice.get(f"/new-batch?from={batch.pk}").text))
    assert again["data"]["31337"]["latest"] == of_search


def test_one_hint_and_one_search_serve_all_holders_of_a_file(chain, alice, key):
    ThrottleCount.objects.all().delete()
    far = _deployed[-1].addresses["Far"]
    html = searched(alice, "Far")
    assert "not confirmed, so the slot stands for this holder only" in text_of(html)
    html = post(alice, "submit", row("Far", holder=f"{ALICE} {BOB}"))
    html = alice.post("/new-batch", filled(html) | {"do": "submit"}).text
    sentence = "The slot follows from no other holder: add a row for each of them."
    assert ("id_rows-0-holder", sentence) in faults_in(html)

    html = post(alice, "paste", row("Far", holder="", base="300"), pasted=f"address\n{ALICE}\n{BOB}\n")
    assert (values(html, "holder"), values(html, "token")[-1]) == ([f"{ALICE} {BOB}"], far)
    html = alice.post("/new-batch", filled(html) | {"do": "find-0"}).text
    assert "and 1 more, token" in text_of(html)
    ((account, asked),) = request_of(alice, filled(html))["data"]["31337"]["latest"]["accounts"].items()
    assert account == far
    assert [(name["slot"], name["keys"]) for name in asked["slots"]] == [("0x12c", [ALICE]), ("0x12c", [BOB])]
    wrong = post(alice, "find-0", row("Far", base="12c"), status=400)
    assert [control for control, _ in faults_in(wrong)] == ["id_rows-0-base"]


def test_votes_are_proven_at_one_block_with_the_number_of_checkpoints(chain, alice, key):
    ThrottleCount.objects.all().delete()
    # Submitting searches first, and submits nothing.
    html = post(alice, "submit", row("OldVotesToken", "votes"))
    assert not Batch.objects.exists()
    of_search = data_of_search(key, "OldVotesToken", "getVotes(address)")
    ((block, _),) = of_search.items()
    number = block.removeprefix("block:")
    assert (values(html, "at"), values(html, "block")) == (["block"], [number])
    assert f"holds at block {number} only" in text_of(html)
    assert "The answer is 224 bits of this slot's word, from bit 32." in text_of(html)
    assert request_of(alice, filled(html))["data"]["31337"] == of_search
    assert sum(len(asked["slots"]) for asked in of_search[block]["accounts"].values()) == 2
    # At a time, it would be the slot of another checkpoint.
    ThrottleCount.objects.all().delete()
    at_time = row("OldVotesToken", "votes", at="time", time="2026-11-20 12:00:00")
    html = post(alice, "find-0", at_time, status=400)
    assert faults_in(html) == [("id_rows-0-at_0", "This slot holds at one block only: choose Latest, Final or Block.")]
    # The slot of a balance holds at each block.
    html = searched(alice, "Token", at="time", time="2026-11-20 12:00:00")
    assert [*request_of(alice, filled(html))["data"]["31337"]] == ["timestamp:1795176000"]


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        ("Flagged", "The answer is 255 bits of this slot's word, from bit 0. The batch proves the whole word."),
        ("Rebasing", "The contract computes its answer from this word. The batch proves the word, not the answer."),
        ("Sum", "The word is the answer at this block, and other slots change it too"),
        ("Hidden", "not confirmed, so the slot stands for this holder only"),
        ("SoladyToken", "Solady: "),
    ],
)
def test_what_is_not_certain_is_said(chain, alice, key, token, sentence):
    html = searched(alice, token)
    assert sentence in text_of(html)
    ((_, of_search),) = data_of_search(key, token, "balanceOf(address)").items()
    assert request_of(alice, filled(html))["data"]["31337"] == {"latest": of_search}
    assert ("not the balance." in text_of(html)) is (token in WITHOUT_SLOT)


def nft_note(html: str) -> bool:
    return "The contract says that it is one of NFTs (ERC-721)." in text_of(html)


def test_a_balance_of_nfts_is_said_to_be_their_number(chain, alice, key):
    for token in ("OldNft", "Token"):
        html = searched(alice, token)
        assert nft_note(html) == (token == "OldNft")
        assert ("ownerOf(uint256)" in text_of(html)) == (token == "OldNft")
        body = {"sourceChainId": "31337", "contract": _deployed[-1].addresses[token], "arguments": [ALICE]}
        body |= {"signature": "balanceOf(address)"}
        answer = Client().post("/find-slots", body, content_type="application/json", headers=header(key)).json()
        assert answer["hints"]["nft"] == ("ERC-721" if token == "OldNft" else None)


# It answers supportsInterface(0xd9b67a26), and reverts otherwise: its balances are those of ids.
ERC1155 = "0x63d9b67a2660043560e01c146012575f5ffd5b60015f5260205ff3"


def test_a_contract_of_several_kinds_of_nfts_is_named(chain, alice):
    ThrottleCount.objects.all().delete()
    chain.rpc("anvil_setCode", CONTRACT_1155, ERC1155)
    chain.mine(1)
    html = post(alice, "find-0", row(CONTRACT_1155), status=422)
    ((_, told),) = [fault for fault in faults_in(html) if fault[0] == "id_rows-0-token"]
    assert told.startswith(NO_SLOT)
    assert "The contract says that it is one of NFTs (ERC-1155)." in told


def test_words_that_a_balance_follows_from_are_not_taken_for_it(chain, alice):
    deployed.deploy_on(chain)
    html = searched(alice, "Rebasing")
    said = text_of(html)
    assert "The token computes the balance from 3 slots: the batch proves these words, not the balance." in said
    assert "Words that a token balance follows from:" in said
    assert "slot found" not in said
    # Its word of each slot, as a number.
    assert [number in said for number in ("10", "20", "10010")] == [True] * 3
    assert 'class="success"' not in html
    warning = "Row 1 proves words, and not the answer that follows from them."
    live = alice.post("/new-batch/estimate", filled(html), headers={"hx-request": "true"}).text
    assert warning in " ".join(live.split())
    # They are submitted only by the button under the warning.
    asked = alice.post("/new-batch", filled(html) | {"do": "submit"})
    assert (asked.status_code, Batch.objects.count()) == (200, 0)
    assert f"Nothing was submitted yet. {warning}" in text_of(asked.text)
    (button,) = set(re.findall(r'value="(submit-[0-9a-f]+)"', asked.text))
    answer = alice.post("/new-batch", filled(asked.text) | {"do": button})
    assert (answer.status_code, Batch.objects.count()) == (303, 1)


def test_submitting_searches_first_and_the_next_press_submits(chain, alice):
    deployed.deploy_on(chain)
    ThrottleCount.objects.all().delete()
    to_check = "Found the slot of row 1. Nothing is submitted yet. Check the slot, then submit."
    html = post(alice, "submit", row("Token"))
    assert to_check in text_of(html)
    token = _deployed[-1].addresses["Token"]
    (title,) = re.findall(r'<span id="row-0">(.*?)</span></span></summary>', html, re.DOTALL)
    assert " ".join(re.sub("<[^>]+>", "", title).split()) == (
        f"NEW balance: {ALICE}, token {token} Development chain (31337), latest block · slot found"
    )
    # Another holder is searched for anew.
    html = alice.post("/new-batch", filled(html) | {"rows-0-holder": BOB, "do": "submit"}).text
    assert to_check in text_of(html)
    assert not Batch.objects.exists()
    # One row is searched for with each press. What isn't certain is not called checked.
    html = alice.post("/new-batch", filled(html) | filled_row(1, row("Flagged")) | {"do": "submit"}).text
    assert "Found the slot of row 2. Nothing is submitted yet." in html
    assert "Check the slot" not in html
    assert alice.post("/new-batch", filled(html) | {"do": "submit"}).status_code == 303


def test_a_form_posted_without_a_button_searches_too(chain, alice):
    ThrottleCount.objects.all().delete()
    answer = alice.post("/new-batch", form(row("Token")))
    assert answer.status_code == 200
    assert "Found the slot of row 1. Nothing is submitted yet." in text_of(answer.text)


def filled_row(number: int, fields: dict[str, Any]) -> dict[str, Any]:
    fields = {"source": "31337", "at": "latest"} | fields
    return {f"rows-{number}-{name}": value for name, value in fields.items()}


def test_another_question_is_searched_for_anew(chain, alice):
    ThrottleCount.objects.all().delete()
    found = filled(searched(alice, "Token"))
    for change in ({"holder": BOB}, {"kind": "votes"}, {"at": "finalized"}, {"found": found["rows-0-found"][0] + "x"}):
        ThrottleCount.objects.all().delete()
        changed = found | {f"rows-0-{name}": value for name, value in change.items()}
        live = alice.post("/new-batch/estimate", changed, headers={"hx-request": "true"}).text
        assert "Press “Find the slot” first." in live
        assert "The word of this slot" not in live
        # The button of the JSON searches first.
        answer = alice.post("/new-batch", changed | {"do": "json"})
        assert answer.headers["Content-Type"].startswith("text/html"), change
    # Nothing is searched again for the same question.
    for do in ("add", "remove-1", "find-7"):
        found = filled(alice.post("/new-batch", found | {"do": do}).text)
    assert len(request_of(alice, {name: found[name] for name in found if "rows-1" not in name})["data"]) == 1


@contextmanager
def refusing(settings: Any, chain: DevChain, *methods: str) -> Iterator[None]:
    def reply(question: Any, honest: Any) -> list[Any]:
        # A state override is the third parameter.
        is_refused = question["method"] in methods or len(question["params"]) == 3
        return [error(question, -32601, "no such method") if is_refused else honest]

    with between(chain.url, reply) as url:
        reconfigure(settings, chain.url, url)
        yield


NO_SLOT = "balanceOf(address) leads to no slot. "


@pytest.mark.parametrize(
    ("asked", "control", "status", "sentence"),
    [
        ({"token": "0x12"}, "token", 400, "'0x12' has 2 hexadecimal digits after 0x, and an address has 40."),
        ({"holder": "0x12"}, "holder", 400, "'0x12' has 2 hexadecimal digits after 0x, and an address has 40."),
        ({"holder": ""}, "holder", 400, "It is empty."),
        ({"token": BOB}, "token", 422, f"{NO_SLOT}{BOB} has no code at block "),
        ({"kind": "votes"}, "token", 422, f"getVotes(address) leads to no slot. getVotes({ALICE}) of 0x"),
        ({"source": "5"}, "source", 400, "Chain 5 is no source chain of this service"),
        # The token is newer than the block, which may be the wrong one.
        ({"at": "block", "block": "0"}, "block", 422, NO_SLOT),
        ({"at": "block", "block": "999999"}, "block", 503, "Development chain (31337) doesn't have block 999999 yet."),
        ({"at": "block", "block": "x"}, "block", 400, "A block number has decimal digits, such as 26,441,180."),
    ],
)
def test_a_failure_is_a_sentence_at_its_field_and_keeps_what_was_typed(chain, alice, asked, control, status, sentence):
    ThrottleCount.objects.all().delete()
    typed = row("Token", accounts=BOB, pasted="") | asked
    html = post(alice, "find-0", typed, status=status, webhook="https://93.184.215.14/?x")
    ((_, told), *others) = [fault for fault in faults_in(html) if fault[0] == f"id_rows-0-{control}"]
    assert (told[: len(sentence)], others) == (sentence, []), faults_in(html)
    for name in ("token", "holder", "accounts"):
        assert filled(html)[f"rows-0-{name}"] == [typed[name]]
    assert "https://93.184.215.14/?x" in html


def test_a_node_that_cannot_tell_is_said_in_a_sentence(chain, alice, settings):
    with refusing(settings, chain, "eth_createAccessList", "debug_traceCall"):
        ThrottleCount.objects.all().delete()
        html = post(alice, "find-0", row("Token"), status=422)
        ((control, sentence),) = faults_in(html)
        assert control == "id_rows-0-token"
        assert sentence.startswith(f"{NO_SLOT}No node of Development chain (31337) says which slots the call reads")
        assert values(html, "holder") == [ALICE]


def test_searches_share_the_limit_of_the_api(chain, alice, key):
    ThrottleCount.objects.all().delete()
    for _ in range(9):
        data_of_search(key, "Token", "balanceOf(address)")
    post(alice, "find-0", row("Token"))
    html = post(alice, "find-0", row("Token"), status=429)
    assert "You may search 10 times in a minute. Ask again in" in text_of(html)
    assert values(html, "holder") == [ALICE]


def test_names_are_resolved_where_the_form_takes_names(chain, alice, settings):
    ThrottleCount.objects.all().delete()
    html = post(alice, "find-0", row("Token", holder="alice.eth"), status=400)
    assert [control for control, _ in faults_in(html)] == ["id_rows-0-holder"]
    assert "an address or an ENS name" not in html
    names.Names(chain).set("alice.eth", ALICE)
    settings.CHAINS_FILE.write_text(settings.CHAINS_FILE.read_text() + "\n[ens]\nchain = 31337\n")
    forget_chains()
    html = post(alice, "find-0", row("Token", holder="bob.eth"), status=400)
    ((control, sentence),) = faults_in(html)
    assert (control, "bob.eth" in sentence) == ("id_rows-0-holder", True)
    (asked,) = request_of(alice, filled(searched(alice, "Token", holder="alice.eth")))["data"]["31337"].values()
    ((_, entry),) = asked["accounts"].items()
    assert entry["slots"][0]["keys"] == [ALICE]
