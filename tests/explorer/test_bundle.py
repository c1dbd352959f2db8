"""The proof bundle, and the command that checks it without a network."""

import json
import re
import socket

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from chains.devchain import DevChain
from explorer import bundle
from queries.models import Block
from tests.explorer.batches import a_batch, accept, finish, path
from tests.service import BOB, a_key, request, submit, work_until_done

pytestmark = pytest.mark.django_db
NOBODY = "0x00000000000000000000000000000000000000aa"


@pytest.fixture
def downloaded(service: DevChain):
    """The bundle of an account that exists, as it comes from the page."""
    return download(service, BOB)


def download(service: DevChain, address: str):
    batch = submit(a_key(), request(address, block=3, props=["BALANCE", "NONCE", "CODE_HASH", "STORAGE_ROOT"]))
    work_until_done(batch, service)
    response = Client().get(f"{path(batch)}/1/bundle.json")
    assert response.headers["Content-Disposition"] == f'attachment; filename="proof-{batch.pk}-1.json"'
    return response.json()


def test_the_command_accepts_what_the_page_offers_and_says_what_it_trusts(downloaded, service, tmp_path, capsys):
    balance = int(service.rpc("eth_getBalance", BOB, "0x3"), 16)
    file = tmp_path / "bundle.json"
    file.write_text(json.dumps(downloaded))
    call_command("verify_bundle", str(file))
    said = capsys.readouterr().out
    assert "The bundle holds." in said
    assert f"BALANCE        0x{balance:064x} ({balance // 10**18} whole units)" in said
    assert f"This is so if {downloaded['blockHash']} is the hash of that block" in said


def test_it_asks_no_network_and_no_database(downloaded, monkeypatch, tmp_path, django_assert_num_queries):
    monkeypatch.setattr(socket, "socket", None)
    file = tmp_path / "bundle.json"
    file.write_text(json.dumps(downloaded))
    with django_assert_num_queries(0):
        call_command("verify_bundle", str(file))


def test_an_account_that_does_not_exist_has_a_bundle_too(service):
    verified = bundle.verify(json.dumps(download(service, NOBODY)))
    assert not verified.exists
    assert int(verified.facts["BALANCE"], 16) == 0


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
    with pytest.raises(bundle.InvalidBundle, match=re.escape(said)):
        bundle.verify(json.dumps(tampered))


@pytest.mark.parametrize(
    ("content", "said"), [("{", "is not JSON"), ("[" * 100_000, "is not JSON"), ("[]", "is not a proof bundle")]
)
def test_what_is_no_bundle_is_said_in_a_sentence(tmp_path, content, said):
    file = tmp_path / "bundle.json"
    file.write_text(content)
    with pytest.raises(CommandError, match=said):
        call_command("verify_bundle", str(file))


def test_a_file_that_is_not_there_is_said_in_a_sentence(tmp_path):
    with pytest.raises(CommandError, match="can't be read: No such file"):
        call_command("verify_bundle", str(tmp_path / "none.json"))


def test_there_is_no_bundle_before_done_nor_without_its_proof():
    batch = a_batch()
    assert Client().get(f"{path(batch)}/1/bundle.json").status_code == 404
    accept(batch)
    assert Client().get(f"{path(batch)}/1/bundle.json").status_code == 404
    finish(batch)
    Block.objects.update(header_rlp=None)
    assert Client().get(f"{path(batch)}/1/bundle.json").status_code == 404
    assert Client().get(f"{path(batch)}/2/bundle.json").status_code == 404
