"""The proof bundle, and the command that checks it without a network."""

import json
import os
import re
import socket
import subprocess
import sys
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone
from eth_utils.address import to_checksum_address

from devnet.devchain import PROJECT, DevChain
from proving.models import AccountProof, Transaction
from queries.models import Batch, BatchStatus, Block
from tests.explorer.batches import CONTRACT, a_batch, accept, everything, finish, path, said_of, word
from tests.service import BOB, HEADER_FIELDS, a_key, request, submit, work_until_done

pytestmark = [pytest.mark.django_db, pytest.mark.outside]
CHAIN_IDS = ("sourceChainId", "destinationChainId")
NO_CHAIN_IDS: tuple[Any, ...] = (
    None,
    31337,
    True,
    [],
    "",
    "0",
    "01",
    "-1",
    "1\n",
    "\u0661",
    "1\n  all is proven \x1b[2J",
    "1" * 21,
)
NOBODY = "0x00000000000000000000000000000000000000aa"


@pytest.fixture
def downloaded(service: DevChain):
    """The bundle of an account that exists, as it comes from the page."""
    return download(service, BOB)


@pytest.fixture(scope="module")
def remembered() -> dict[int, Any]:
    return {}


@pytest.fixture
def bundles_of_everything(request: pytest.FixtureRequest, remembered: dict[int, Any]) -> dict[int, Any]:
    """By the query's number; proven once for all tests that only change them."""
    if not remembered:
        batch = everything(request.getfixturevalue("service"))
        remembered |= {number: bundle_of(batch, number) for number in (2, 3, 4)}
    return remembered


def download(service: DevChain, address: str):
    batch = submit(a_key(), request(address, block=3, props=["BALANCE", "NONCE", "CODE_HASH", "STORAGE_ROOT"]))
    work_until_done(batch, service)
    response = Client().get(f"{path(batch)}/1/bundle.json")
    assert response.headers["Content-Disposition"] == f'attachment; filename="proof-{batch.pk}-1.json"'
    assert response.content.endswith(b"}\n")
    return response.json()


def test_the_command_accepts_what_the_page_offers_and_says_what_it_trusts(downloaded, service):
    balance = int(service.rpc("eth_getBalance", BOB, "0x3"), 16)
    said = said_of(json.dumps(downloaded))
    assert "The bundle holds." in said
    assert f"BALANCE        0x{balance:064x} ({balance // 10**18} whole units)" in said
    assert "chain    31337 (claimed, not proven" in said
    assert f"This is so if {downloaded['blockHash']} is the hash of that block of chain 31337:" in said


def test_it_asks_no_network_and_no_database(downloaded, monkeypatch, django_assert_num_queries):
    monkeypatch.setattr(socket, "socket", None)
    with django_assert_num_queries(0):
        said_of(json.dumps(downloaded))


def test_an_account_that_does_not_exist_has_a_bundle_too(service):
    said = said_of(json.dumps(download(service, NOBODY)))
    assert "(does not exist)" in said
    assert f"BALANCE        {word(0)}" in said


def test_what_is_pruned_while_it_is_read_is_no_bundle(service):
    batch = everything(service)
    is_pruned = False

    def prune_before_proofs_are_read(execute: Any, sql: str, *how: Any) -> Any:
        nonlocal is_pruned
        if "proving_accountproof" in sql and not is_pruned:
            is_pruned = True
            Batch.objects.update(proofs_pruned_at=timezone.now())
            AccountProof.objects.update(nodes=[])
        return execute(sql, *how)

    with connection.execute_wrapper(prune_before_proofs_are_read):
        gone = Client().get(f"{path(batch)}/2/bundle.json")
    assert is_pruned
    assert (gone.status_code, gone.json()["code"]) == (410, "proofs_pruned")


def bundle_of(batch: Batch, number: int):
    return Client().get(f"{path(batch)}/{number}/bundle.json").json()


def test_slots_full_and_empty_are_proven_by_their_nodes(service):
    content = bundle_of(everything(service), 2)
    assert len(content["storageNodes"]) == len(set(content["storageNodes"]))
    said = said_of(json.dumps(content))
    assert f"account  {to_checksum_address(CONTRACT)}\n" in said
    assert f"slot 0x5: {word(77)} (77)" in said
    assert f"slot 0x6: {word(0)} (0)" in said


def test_a_header_s_properties_are_proven_by_the_header_alone(service):
    content = bundle_of(everything(service), 3)
    assert (content["account"], content["accountProof"]) == (None, None)
    assert set(content["facts"]) == set(HEADER_FIELDS)
    block = service.rpc("eth_getBlockByNumber", hex(int(content["blockNumber"])), False)
    said = said_of(json.dumps(content))
    assert "the block's header" in said
    assert f"GAS_LIMIT      {word(int(block['gasLimit'], 16))} ({int(block['gasLimit'], 16)})" in said
    assert "LOGS_BLOOM     0x" in said
    assert "(keccak-256 of its bytes)" in said
    assert re.search(r"TIMESTAMP .+, \d{4}-\d\d-\d\d [\d:]+ UTC", said)


def test_a_time_is_proven_by_the_header_after_it_whose_hash_must_be_compared_too(service):
    content = bundle_of(everything(service), 4)
    number = int(content["blockNumber"])
    following = service.rpc("eth_getBlockByNumber", hex(number + 1), False)["hash"]
    said = said_of(json.dumps(content))
    assert f"block {number} was the latest at the time {content['timestamp']}, " in said
    assert f"is the hash of that block of chain 31337, and {following} that of block {number + 1}" in said


def test_the_header_after_it_is_taken_from_whoever_asked_for_its_block(service):
    batch = everything(service)
    number = int(bundle_of(batch, 4)["blockNumber"])
    Transaction.accumulates.through.objects.all().delete()
    assert bundle_of(batch, 4)["nextHeader"] is None
    work_until_done(submit(a_key(name="another"), request(BOB, block=number + 1)), service)
    said = said_of(json.dumps(bundle_of(batch, 4)))
    assert f"{Block.objects.get(number=number + 1).hash} that of block {number + 1}" in said


def test_a_time_without_the_header_after_it_is_said_to_be_unchecked(service):
    content = bundle_of(everything(service), 4) | {"nextHeader": None}
    said = said_of(json.dumps(content))
    assert "The bundle holds." in said
    assert f"NOT checked: that block {content['blockNumber']} was the latest at the time" in said


def change_slot(content: Any, **parts: Any) -> Any:
    return {"slots": content["slots"] | {word(5): content["slots"][word(5)] | parts}}


@pytest.mark.parametrize(
    ("number", "change", "said"),
    [
        (2, lambda b: change_slot(b, word=word(78)), "The proof shows another word in slot 0x"),
        (2, lambda b: change_slot(b, proof=[]), "The proof ends before its key does."),
        (2, lambda b: change_slot(b, proof=[99]), "is not a list of places in storageNodes."),
        (2, lambda b: change_slot(b, proof=[True]), "is not a list of places in storageNodes."),
        (2, lambda b: {"slots": {word(7): b["slots"][word(5)]}}, "The proof shows another word in slot 0x"),
        (2, lambda b: {"slots": {"0x5": b["slots"][word(5)]}}, "The bundle's slot is not 32 bytes in hex."),
        (2, {"slots": {}}, "The bundle claims no facts."),
        (2, {"slots": []}, "The bundle's slots are not an object."),
        (2, {"account": None}, "The bundle claims slots of no account."),
        (3, lambda b: {"facts": b["facts"] | {"GAS_USED": word(1)}}, "The proof shows another GAS_USED"),
        (3, {"facts": {"BALANCE": word(1)}}, "The bundle claims a fact that is not known: 'BALANCE'"),
        (4, {"timestamp": "1"}, "after the time 1 that the bundle names."),
        (4, {"timestamp": str(2**63)}, f"not after the time {2**63}."),
        (4, {"timestamp": "9" * 20}, f"not after the time {'9' * 20}."),
        (4, {"timestamp": "9" * 21}, "The bundle's timestamp is not a number of seconds."),
        (4, {"timestamp": 5}, "The bundle's timestamp is not a number of seconds."),
        (4, lambda b: {"nextHeader": b["header"]}, "The nextHeader is not that of the block after it."),
        (4, {"nextHeader": "0x80"}, "The header is no list"),
        *((3, {name: value}, f"The bundle's {name} is not a chain id") for name in CHAIN_IDS for value in NO_CHAIN_IDS),
        (3, {"batch": None}, "The bundle's batch is not"),
        (3, {"batch": "\x1b[2J"}, "The bundle's batch is not"),
        (3, {"query": "1"}, "The bundle's query is not"),
        (3, {"query": 0}, "The bundle's query is not"),
        (3, {"query": True}, "The bundle's query is not"),
        (3, {"factsRegistry": "0x12"}, "The bundle's factsRegistry is not 20 bytes in hex."),
    ],
)
def test_whatever_was_changed_of_slots_headers_times_and_origin_is_found(bundles_of_everything, number, change, said):
    content = bundles_of_everything[number]
    with pytest.raises(CommandError, match=re.escape(said)):
        said_of(json.dumps(content | (change(content) if callable(change) else change)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"blockHash": "0x" + "00" * 32}, "The header's hash is not the block's hash."),
        ({"blockHash": "0x12"}, "The bundle's blockHash is not 32 bytes in hex."),
        (lambda b: {"header": b["header"][:-2] + "00"}, "The header's hash is not the block's hash."),
        ({"blockNumber": "4"}, "The header is that of block 3,"),
        ({"account": "0x" + "11" * 20}, "The proof"),
        (lambda b: {"accountProof": b["accountProof"][:-1]}, "The proof ends before its key does."),
        (lambda b: {"accountProof": [*b["accountProof"], "0x80"]}, "The proof has nodes after its end."),
        ({"accountProof": "0x"}, "The bundle's accountProof is not a list."),
        ({"accountProof": [1]}, "The bundle's accountProof is not hex."),
        (lambda b: {"facts": b["facts"] | {"BALANCE": "0x" + "00" * 32}}, "The proof shows another BALANCE"),
        ({"facts": {"SIZE": "0x00"}}, "The bundle claims a fact that is not known"),
        ({"facts": {}}, "The bundle claims no facts."),
        ({"format": "else"}, "The file is not a proof bundle"),
    ],
)
def test_whatever_was_changed_is_found(downloaded, change, said):
    tampered = downloaded | (change(downloaded) if callable(change) else change)
    with pytest.raises(CommandError, match=re.escape(said)):
        said_of(json.dumps(tampered))


@pytest.mark.parametrize(
    ("content", "said"), [("{", "is not JSON"), ("[" * 100_000, "is not JSON"), ("[]", "is not a proof bundle")]
)
def test_what_is_no_bundle_is_said_in_a_sentence(content, said):
    with pytest.raises(CommandError, match=said):
        said_of(content)


def test_a_file_that_is_not_there_is_said_in_a_sentence(tmp_path):
    with pytest.raises(CommandError, match="can't be read: No such file"):
        call_command("verify_bundle", str(tmp_path / "none.json"))


BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def no_bundle(address: str) -> str:
    """Return the code that says why there is no bundle. Programs get it as JSON, people are told on a page."""
    for headers in ({}, {"accept": "*/*"}, {"accept": "application/json"}):
        answer = Client().get(f"{address}/bundle.json", headers=headers)
        assert answer.status_code == 404
        assert answer.json().keys() == {"error", "code"}
    page = Client().get(f"{address}/bundle.json", headers=BROWSER)
    assert (page.status_code, page.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
    assert page.headers["Vary"].startswith("Accept")
    if answer.json()["code"] != "not_found":
        assert answer.json()["error"] in page.text
    return str(answer.json()["code"])


def test_there_is_no_bundle_before_its_query_is_completed_nor_without_its_proof():
    batch = a_batch()
    assert no_bundle(f"{path(batch)}/1") == "not_done"
    accept(batch)
    assert no_bundle(f"{path(batch)}/1") == "not_done"
    finish(batch)
    Block.objects.update(header_rlp=None)
    assert no_bundle(f"{path(batch)}/1") == "no_proof"
    assert no_bundle(f"{path(batch)}/2") == "not_found"
    Batch.objects.update(status=BatchStatus.REJECTED)
    assert no_bundle(f"{path(batch)}/1") == "rejected"


@pytest.mark.parametrize("address", ["", "/1", "/1/read", ".json", "/request.json", "/1/bundle.json"])
@pytest.mark.parametrize("headers", [BROWSER, {"accept": "application/json"}], ids=["person", "program"])
def test_a_batch_that_there_is_not_is_told_in_the_form_that_is_asked_for(db, address, headers):
    method = Client().post if address == "/1/read" else Client().get
    answer = method(f"/explorer/query/{'0' * 26}{address}", headers=headers)
    assert answer.status_code == 404
    if headers is BROWSER:
        assert "<h1>There is no such batch</h1>" in answer.text
    else:
        assert answer.json() == {"error": "No query found", "code": "not_found"}


@pytest.mark.parametrize(("damage", "status"), [(lambda text: text, 0), (lambda text: text.replace("0x", "0y"), 1)])
def test_the_command_writes_nothing_and_needs_no_installation(downloaded, tmp_path, damage, status):
    folder = tmp_path / "empty"
    folder.mkdir()
    (folder / "bundle.json").write_text(damage(json.dumps(downloaded)))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        "STATE_DIR": str(folder / "state"),
        "CHAINS_FILE": str(folder / "chains.toml"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, str(PROJECT / "manage.py"), "verify_bundle", "bundle.json"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    assert ("The bundle holds." in done.stdout) == (status == 0)
    assert "Traceback" not in done.stderr
    assert [path.name for path in folder.iterdir()] == ["bundle.json"]
