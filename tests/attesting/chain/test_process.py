"""Attesters as processes: concurrent requests, kills, duplicates, stops and reorgs."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests
from django.core.management import CommandError, call_command

from devnet.devchain import PROJECT, DevChain
from tests.attesting import process
from tests.chain_fixtures import chain_fixture

pytestmark = pytest.mark.outside


@pytest.fixture(scope="module")
def attester_process(devchain, tmp_path_factory) -> Iterator[process.Running]:
    folder = tmp_path_factory.mktemp("alice")
    process.chains_file(folder, devchain.url)
    with process.running(folder) as attester:
        yield attester


# A chain that the test may reorganise.
own_chain = chain_fixture(lambda chain: chain.mine(10), scope="function")


def hex_of(chain: DevChain, number: int) -> str:
    return "0x" + process.block_hash(chain, number).hex()


def stored(folder: Path) -> list[tuple[int, str]]:
    with closing(sqlite3.connect(folder / "state" / "db.sqlite3")) as database:
        return database.execute("SELECT number, hash FROM attesting_signedblock").fetchall()


def post(attester: process.Running, body: Any, **headers: str) -> requests.Response:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return requests.post(f"{attester.url}/attest", data=data, headers=headers, timeout=60)


def attested(attester: process.Running, number: int) -> str:
    """Return the block hash that the attester signs."""
    body = process.question(number)
    answer = post(attester, body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["attester"] == process.signer_of(body, answer.json()) == attester.account_address
    block: str = answer.json()["blockHash"]
    return block


def refused(attester: process.Running, number: int) -> tuple[str, str]:
    """Return the code and the sentence of the attester's refusal."""
    answer = post(attester, process.question(number))
    assert answer.status_code >= 400
    return answer.json()["code"], answer.json()["error"]


# --- Kills and duplicates ---------------------------------------------------------------------------------------------

# Only the signature is replaced, by SIGKILL.
DIE_INSTEAD_OF_SIGNING = """
import json, os, signal, sys, django
from django.test import Client
from eth_account.signers.local import LocalAccount
django.setup()
LocalAccount.sign_message = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
Client().post("/attest", json.loads(sys.argv[1]), content_type="application/json")
"""


@pytest.mark.long
def test_killed_between_storing_and_signing_it_signs_no_other_hash(own_chain, tmp_path):
    process.chains_file(tmp_path, own_chain.url)
    first = hex_of(own_chain, 8)
    assert process.run(tmp_path, "migrate", "attesting").returncode == 0
    env = {**process.environment(tmp_path), "DJANGO_SETTINGS_MODULE": "attesting.settings"}
    command = [sys.executable, "-c", DIE_INSTEAD_OF_SIGNING, json.dumps(process.question(8))]
    died = subprocess.run(command, cwd=PROJECT, env=env, timeout=90, check=False)
    assert died.returncode == -signal.SIGKILL
    assert stored(tmp_path) == [(8, first)]
    with process.running(tmp_path) as attester:
        assert attested(attester, 8) == first
        own_chain.rpc("anvil_setCoinbase", process.BOB.address)
        own_chain.rpc("anvil_reorg", 5, [])
        assert refused(attester, 8)[0] == "conflict"


@pytest.mark.long
def test_two_processes_on_one_database_sign_one_hash_for_a_number(devchain, own_chain, tmp_path):
    """The two processes' nodes have different blocks. The process that signs a number second must refuse it."""
    own_chain.rpc("anvil_setCoinbase", process.BOB.address)
    own_chain.rpc("anvil_reorg", 10, [])
    folder, other_folder = tmp_path / "one", tmp_path / "other"
    process.chains_file(folder, devchain.url)
    process.chains_file(other_folder, own_chain.url)
    (folder / "state").mkdir()
    (other_folder / "state").symlink_to(folder / "state")
    numbers = range(1, 9)
    with (
        process.running(folder) as first,
        process.running(other_folder) as second,
        ThreadPoolExecutor(max_workers=4) as pool,
    ):
        questions = [(attester, number) for number in numbers for attester in (first, second)]
        answers = list(pool.map(lambda each: post(each[0], process.question(each[1])).json(), questions))
    hashes = dict(stored(folder))
    assert sorted(hashes) == list(numbers)
    for number, *pair in zip(numbers, answers[::2], answers[1::2], strict=True):
        signed, refusal = sorted(pair, key=lambda answer: "code" in answer)
        assert (signed["blockHash"], refusal["code"]) == (hashes[number], "conflict")


# --- HTTP -------------------------------------------------------------------------------------------------------------

VALID = process.question(5)


def test_whatever_name_it_is_reached_by_it_answers(devchain, attester_process):
    answer = post(attester_process, VALID, Host="attester.example.org")
    assert answer.status_code == 200
    assert answer.json().keys() == {"attester", "blockHash", "signature"}
    assert answer.json()["blockHash"] == hex_of(devchain, 5)
    assert not answer.cookies


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (VALID | {"sourceChainId": 31337}, "sourceChainId: must be a whole number in decimal digits, in quotes"),
        (VALID | {"sourceChainId": "0"}, "sourceChainId: "),
        (VALID | {"blockNumber": "-1"}, "blockNumber: must be a whole number"),
        (VALID | {"blockNumber": "05"}, "blockNumber: must be a whole number"),
        (VALID | {"blockNumber": "\u0665"}, "blockNumber: must be a whole number"),
        (VALID | {"blockNumber": str(2**63)}, "blockNumber: "),
        (VALID | {"destinationChainId": str(2**256)}, "destinationChainId: "),
        (VALID | {"verifyingContract": "0x12"}, "verifyingContract: must be 0x and 40 hexadecimal digits"),
        (VALID | {"verifyingContract": process.CONTRACT.replace("F", "f")}, "verifyingContract: must be 0x and 40"),
        (VALID | {"blockHash": "0x"}, "it has fields other than"),
        ({key: VALID[key] for key in VALID if key != "blockNumber"}, "blockNumber: "),
        ([VALID], ""),
        (b"{", ""),
        (b"\xff", ""),
        (b"", ""),
    ],
)
def test_a_malformed_request_is_refused_with_its_faulty_field(attester_process, body, fault):
    answer = post(attester_process, body)
    assert answer.status_code == 400
    assert answer.json()["code"] == "bad_request"
    assert answer.json()["error"].startswith(f"The request is malformed: {fault}")


@pytest.mark.parametrize("charset", ["idna", "rot13", "punycode", "undefined", "zip", "utf-16", "nonsense", "x" * 900])
def test_no_charset_of_a_request_changes_the_answer(attester_process, charset):
    kinds = (f"x; charset={charset}", f'x; Charset="{charset}"', f"x; charset*={charset}''y", f"x; a*={charset}''%ff")
    for kind in kinds:
        url, fields = f"{attester_process.url}/nothing?x=%ff", {"Content-Type": kind, "Accept": kind}
        assert requests.get(url, headers=fields, timeout=60).status_code == 404
        answer = post(attester_process, process.question(5), **fields)
        assert answer.status_code == 200, answer.text


def test_a_large_body_is_refused(attester_process):
    answer = post(attester_process, VALID | {"padding": "x" * 10_000})
    assert answer.status_code == 413


def test_an_attester_serves_nothing_else(attester_process):
    for path in ("/", "/sign-in", "/submit-batch-query", "/static/x", "/api/docs"):
        answer = requests.get(f"{attester_process.url}{path}", timeout=10)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
        assert "Content-Security-Policy" not in answer.headers
    answer = requests.get(f"{attester_process.url}/attest", timeout=10)
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")


def test_its_health_tells_who_it_is_and_how_far_its_chains_are(devchain, attester_process):
    answer = requests.get(f"{attester_process.url}/healthz", timeout=10)
    assert answer.status_code == 200
    assert answer.json() == {
        "attester": process.ALICE.address,
        "chains": {"31337": {"newestFinalBlock": str(devchain.head() - 2)}},
    }


# --- Start and stop ---------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_without_a_node_its_health_says_so_and_sigterm_ends_it(tmp_path):
    process.chains_file(tmp_path, "http://127.0.0.1:1/secret")
    with process.running(tmp_path) as attester:
        answer = requests.get(f"{attester.url}/healthz", timeout=10)
        os.kill(attester.process._process.pid, signal.SIGTERM)
        assert attester.process._process.wait(60) == 0
    assert answer.status_code == 503
    assert answer.json()["chains"] == {"31337": {"error": "No node of chain 31337 answers this attester."}}
    assert not any("secret" in line for line in attester.lines)
    with closing(sqlite3.connect(tmp_path / "state" / "db.sqlite3")) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == {"attesting_signedblock", "django_migrations", "sqlite_sequence"}


@pytest.mark.long
def test_it_does_not_start_while_its_port_is_in_use(tmp_path):
    process.chains_file(tmp_path, "http://127.0.0.1:1")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = process.run(tmp_path, "run_attester", "--bind", bind)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == f"CommandError: The attester can't listen on {bind}: Address already in use.\n"


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('[attester]\nkey_file = "attester.key"', "", "The chains file has no \\[attester\\] table"),
        ("attester.key", "another.key", "another.key can't be read"),
        ("[[chains]]", "[[networks]]", "networks: is not known here"),
    ],
)
def test_without_a_key_or_chains_it_does_not_start(tmp_path, settings, old, new, fault):
    path = settings.CHAINS_FILE = process.chains_file(tmp_path, "http://127.0.0.1:1")
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(CommandError, match=fault):
        call_command("run_attester")


@pytest.mark.parametrize("bind", ["localhost", "8100", "127.0.0.1:x", "127.0.0.1:99999", ""])
def test_run_attester_refuses_a_bind_address_without_a_valid_port(tmp_path, settings, db, bind):
    settings.CHAINS_FILE = process.chains_file(tmp_path, "http://127.0.0.1:1")
    with pytest.raises(CommandError, match="--bind must look like"):
        call_command("run_attester", bind=bind)
