"""`bqs` without a service: arguments, kept keys, output and exit codes."""

import io
import json
import os
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import keyring
import pytest
from eth_account import Account as Wallet
from eth_utils.crypto import keccak
from keyring.backend import KeyringBackend
from keyring.backends import fail
from keyring.errors import KeyringLocked

import batch_query_client
from batch_query_client import BatchDetails, Fact, ServiceRefused, ShownLog, ShownTransaction, Wait
from batch_query_client.command_line import credentials, exit_codes
from batch_query_client.command_line.asked_in_files import BatchOptions, batch_body, read_time
from batch_query_client.command_line.exit_codes import ExitCode, exit_code
from batch_query_client.command_line.keystores import open_keystore
from batch_query_client.command_line.options import read_amount, read_fee
from batch_query_client.command_line.output import (
    amount,
    cost,
    log_content,
    print_facts,
    print_json,
    print_table,
    progress,
)
from batch_query_client.command_line.running import _report, bqs, run
from devnet.devchain import ACCOUNTS, PROJECT
from tests.chains.lying_node import Raw, lying_node, recording

pytestmark = pytest.mark.outside

URL = "http://127.0.0.1:1"
KEY = "bqs_" + "k" * 43
CHAINS = {"ethereum": 1, "op mainnet": 10}
ALICE, ALICE_KEY = ACCOUNTS[0]
B = "0x" + "bb" * 20
DIGEST = "0x" + "7a" * 32


class Memory(KeyringBackend):
    """A keyring in memory, unlocked or locked."""

    priority = 1

    def __init__(self, *, locked: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # keyring's
        self.kept: dict[tuple[str, str], str] = {}
        self._locked = locked

    def get_password(self, service: str, username: str) -> str | None:
        self._check()
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._check()
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._check()
        self.kept.pop((service, username), None)

    def _check(self) -> None:
        if self._locked:
            raise KeyringLocked


@pytest.fixture(autouse=True)
def nobody_has_logged_in(monkeypatch, tmp_path) -> None:
    for name in [name for name in os.environ if name.startswith("BQS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("BQS_PATIENCE", "0")
    keyring.set_keyring(no_keyring())


def no_keyring() -> KeyringBackend:
    return fail.Keyring()  # type: ignore[no-untyped-call] # keyring's


def bqs_says(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(arguments)
    output = capsys.readouterr()
    return code, output.out, output.err


# --- Requests ---------------------------------------------------------------------------------------------------------


def body_of(**options_given: Any) -> Any:
    nothing = dict.fromkeys(("file", "destination", "chain", "block", "time", "fee", "webhook"))
    names = ("accounts", "props", "slots", "transactions", "logs", "block_logs", "header", "webhook_events")
    lists = dict.fromkeys(names, ())
    connections = options_given.pop("connections", ())
    options = BatchOptions(**{**nothing, **lists, "is_paid_by_caller": False, **options_given})
    return batch_body(options, lambda: CHAINS, lambda: connections).document


def test_arguments_become_the_body():
    arguments = {"destination": 10, "chain": 1, "block": "15", "accounts": ["0xaa", "b.eth"], "props": ["BALANCE"]}
    entry = {"props": ["BALANCE"], "slots": []}
    assert body_of(**arguments) == {
        "destinationChainId": "10",
        "fee": "auto",
        "data": {"1": {"block:15": {"accounts": {"0xaa": entry, "b.eth": entry}}}},
    }
    assert body_of(**arguments, is_paid_by_caller=True)["sender"] == "self"
    assert "fee" not in body_of(**arguments, is_paid_by_caller=True)
    hook = body_of(**arguments, fee="7", webhook="https://a.example", webhook_events=["DONE"])
    assert (hook["fee"], hook["webhook"]) == ("7", {"url": "https://a.example", "headers": {}, "events": ["DONE"]})
    assert body_of(**arguments, label="Payroll")["label"] == "Payroll"
    name = {"slot": "0x5", "keys": [{"index": "1"}]}
    (entry,) = body_of(**arguments | {"accounts": ["0xaa"], "slots": ["a", "f:0xbb:7", json.dumps(name)]})["data"]["1"][
        "block:15"
    ]["accounts"].values()
    assert entry["slots"] == [f"0x{10:064x}", {"slot": f"0x{15:064x}", "keys": ["0xbb", "7"]}, name]
    for wrong in ("g:1", ":1", "{"):
        with pytest.raises(ValueError, match="slot"):
            body_of(**arguments | {"slots": [wrong]})
    at = body_of(destination=10, chain=1, time="2026-01-01T00:00:00Z", header=["TIMESTAMP"])
    assert at["data"] == {"1": {"timestamp:1767225600": {"header": ["TIMESTAMP"]}}}


def test_proofs_of_withdrawals_are_asked_for_and_shown(capsys, monkeypatch):
    withdrawal = {"place": "3", "index": "38266025", "validatorIndex": "1268172", "address": B, "amount": "16045681"}
    proof = {
        "sourceChainId": "1",
        "selector": "block:19426587",
        "blockNumber": "19426587",
        **dict.fromkeys(("account", "slot", "slotName", "transaction", "log", "value")),
        "property": "WITHDRAWAL",
        "withdrawal": withdrawal,
        "word": f"0x{16045681:064x}",
        "proof": "0xc0",
        "root": {"property": "WITHDRAWALS_ROOT", "word": f"0x{1:064x}", "isFact": True, "batch": None},
        "view": {"to": B, "function": "withdrawalByProof", "data": "0x"},
    }
    bodies: list[Any] = []
    arguments = ["proofs", "--destination", "10", "--chain", "1", "--block", "19426587", "--withdrawal", "3"]
    monkeypatch.setenv("BQS_API_KEY", KEY)
    with lying_node(recording(bodies, lambda _: {"proofs": [proof]})) as url:
        shown = bqs_says(capsys, *arguments, "--withdrawal", "0", "--url", url)
        in_json = bqs_says(capsys, *arguments, "--json", "--url", url)
    assert [body["data"] for body in bodies] == [
        {"1": {"block:19426587": {"withdrawals": places}}} for places in (["3", "0"], ["3"])
    ]
    assert (shown[0], json.loads(in_json[1])) == (0, [proof])
    cells = " ".join(shown[1].split())
    assert "withdrawal 3 WITHDRAWAL 16045681 Gwei to 0xbbbb" in cells
    assert "from validator 1268172, index 38266025 a fact" in cells


TOKEN = "0x" + "cc" * 20
SLOT_OF_ALICE: dict[str, Any] = {
    "account": TOKEN,
    "slot": f"0x{5:064x}",
    "layout": "solidity",
    "certainty": "is_value",
    "word": f"0x{6:064x}",
    "value": "6",
    "onlyAtThisBlock": False,
    "slotName": {"slot": "0x0", "keys": [ALICE], "layout": "solidity"},
}
FOUND: dict[str, Any] = {
    "sourceChainId": "1",
    "blockNumber": "9",
    "blockHash": DIGEST,
    "foundBy": "eth_createAccessList",
    "slots": [SLOT_OF_ALICE],
    "batch": {},
}
OF_TOKEN = ("--token", TOKEN, "--block", "9")
CHAINS_OF_TOKEN = ("--chain", "1", "--destination", "10")


def test_a_service_that_finds_another_slot_than_it_was_asked_for_is_found_out(monkeypatch, capsys):
    """The slot of a vault's balance may be another contract's: that is told."""
    slot, name = SLOT_OF_ALICE, SLOT_OF_ALICE["slotName"]
    answers: list[dict[str, Any]] = []
    monkeypatch.setenv("BQS_API_KEY", KEY)
    with lying_node(lambda _: answers[-1]) as url:
        monkeypatch.setenv("BQS_URL", url)
        for change, sentence in (
            ({"slots": []}, "slots"),
            ({"blockNumber": "8"}, "another chain or block"),
            ({"sourceChainId": "2"}, "another chain or block"),
            ({"slots": [slot | {"slotName": name | {"keys": [B]}}]}, "isn't of this holder"),
            ({"slots": [slot | {"account": B}]}, f"is 6, in {slot['slot']} of {B} (solidity)."),
            ({}, f"is 6, in {slot['slot']} (solidity)."),
        ):
            answers.append(FOUND | change)
            code, _, errors = bqs_says(capsys, "submit", *OF_TOKEN, *CHAINS_OF_TOKEN, "--holder", ALICE)
            assert (code != 0, sentence in errors) == (True, True), errors


@pytest.mark.parametrize(
    ("arguments", "change", "sentence"),
    [
        ((*CHAINS_OF_TOKEN, "--holder", ALICE, "--holder", B), {}, None),
        ((*CHAINS_OF_TOKEN, "--holder", ALICE), {"slotName": None}, None),
        ((*CHAINS_OF_TOKEN, "--holder", ALICE, "--holder", B), {"slotName": None}, "needs a batch of its own"),
        (
            (*CHAINS_OF_TOKEN, "--holder", ALICE, "--holder", B),
            {"slotName": SLOT_OF_ALICE["slotName"] | {"keys": [ALICE, "1"]}},
            "needs a batch of its own",
        ),
        ((*CHAINS_OF_TOKEN, "--holder", ALICE), {"certainty": "computed"}, "it can't be proven as one value. Prove"),
        (("--holder", ALICE), None, "A token's balance needs --chain and --destination."),
        (("--chain", "1", "--holder", ALICE), None, "A token's balance needs --destination."),
        (CHAINS_OF_TOKEN, None, "A token's balance needs --holder."),
        ((*CHAINS_OF_TOKEN, "--holder", ALICE, "--time", "5"), None, "Leave out --time"),
        ((*CHAINS_OF_TOKEN, "--holder", ALICE, "--prop", "NONCE"), None, "Name either a token's balance"),
        ((*CHAINS_OF_TOKEN, "--holder", ALICE, "--holder", "b.eth"), None, "takes addresses, and 'b.eth' is none."),
    ],
)
def test_the_slots_of_several_holders_are_named_after_one_search(monkeypatch, capsys, arguments, change, sentence):
    """Without `change`, nothing is searched."""
    monkeypatch.setenv("BQS_API_KEY", KEY)
    bodies: list[Any] = []
    found = FOUND | {"slots": [SLOT_OF_ALICE | (change or {})]}

    def answer(body: Any) -> Any:
        return found if "signature" in body else {"internalId": "01M7W1MRHW703BTRFFPT53VVP5"}

    with lying_node(recording(bodies, answer)) as url:
        code, _, errors = bqs_says(capsys, "submit", *OF_TOKEN, *arguments, "--url", url)
    if sentence:
        assert (code, sentence in errors, "The balance of" in errors) == (ExitCode.USAGE, True, False), errors
        assert len(bodies) == (change is not None)
        return
    searched, estimated, submitted = bodies
    assert estimated == submitted
    assert (code, searched["arguments"]) == (0, [ALICE])
    ((account, asked),) = submitted["data"]["1"]["block:9"]["accounts"].items()
    named = [SLOT_OF_ALICE["slotName"] | {"keys": [holder]} for holder in arguments[5::2]]
    assert (account, asked["slots"]) == (TOKEN, [SLOT_OF_ALICE["slot"]] if "slotName" in change else named)


def test_a_key_that_is_the_token_itself_is_no_holder_s(monkeypatch, capsys):
    """The key may be the contract, whoever the holder is."""
    monkeypatch.setenv("BQS_API_KEY", KEY)
    bodies: list[Any] = []
    whole_slot = {"certainty": "is_value", "part": {"offset": 0, "size": 256, "form": "unsigned"}}

    def answer(body: Any) -> Any:
        if "signature" not in body:
            return {"internalId": "01M7W1MRHW703BTRFFPT53VVP5"}
        name = SLOT_OF_ALICE["slotName"] | {"keys": body["arguments"]}
        layout = layouts[-1]
        if layout == "solady":
            name = {"slot": f"{body['arguments'][0].lower()}{'87a211a2':0>24}", "keys": [{"index": "0"}]}
        return FOUND | {"slots": [SLOT_OF_ALICE | whole_slot | {"slotName": name, "layout": layout}]}

    layouts: list[str] = []
    with lying_node(recording(bodies, answer)) as url:
        for layout in ("solidity", "vyper", "solady"):
            layouts.append(layout)
            for holder in (TOKEN, TOKEN.lower(), ALICE):
                asked = (*CHAINS_OF_TOKEN, "--holder", holder, "--url", url)
                code, _, errors = bqs_says(capsys, "submit", *OF_TOKEN, *asked)
                assert code == 0, errors
                is_of_any = "lot(" in errors and ", holder)" in errors
                assert (is_of_any, f"bytes32({SLOT_OF_ALICE['slot']})" in errors) == (holder == ALICE, holder != ALICE)
        layouts.append("solidity")
        bodies.clear()
        both = (*CHAINS_OF_TOKEN, "--holder", TOKEN, "--holder", ALICE, "--url", url)
        assert bqs_says(capsys, "submit", *OF_TOKEN, *both)[0] == 0
    ((_, of_token),) = bodies[-1]["data"]["1"]["block:9"]["accounts"].items()
    assert bodies[0]["arguments"] == [ALICE]
    assert [name["keys"] for name in of_token["slots"]] == [[ALICE], [TOKEN]]


@pytest.mark.parametrize("retryable", [False, True])
@pytest.mark.parametrize("more", [(), ("--idempotency-key", "mine")])
def test_a_batch_that_would_surely_be_rejected_is_not_submitted(monkeypatch, capsys, retryable, more):
    monkeypatch.setenv("BQS_API_KEY", KEY)
    bodies: list[Any] = []
    rejection = {
        "code": "log_index_beyond",
        "error": "There is no log 9.",
        "retryable": retryable,
        "sourceChainId": "1",
    }
    cost = {"expected": "1", "bound": "1"}
    estimate = {
        "gas": cost,
        "wei": cost,
        "gasPrice": "1",
        "sources": [],
        "transactions": 1,
        "blocksToDone": 1,
        "secondsToDone": 1,
        "rejections": [rejection],
        "waits": [],
    }

    def answer(_: Any) -> Any:
        return {"internalId": "01M7W1MRHW703BTRFFPT53VVP5"} if len(bodies) > (not more) else estimate

    asked = ("--destination", "1", "--chain", "1", "--block", "9", "--transaction", "0", "--log", "9")
    with lying_node(recording(bodies, answer)) as url:
        code, _, errors = bqs_says(capsys, "submit", *asked, *more, "--url", url)
    is_refused = not retryable and not more
    assert (code, "There is no log 9." in errors, len(bodies)) == (
        ExitCode.USAGE if is_refused else 0,
        is_refused,
        1 if is_refused or more else 2,
    )


def test_arguments_about_transactions_become_the_body():
    asked = {"destination": 10, "chain": 1, "props": ["STATUS", "NONCE"], "logs": [3], "transactions": [DIGEST]}
    entry = {"props": ["STATUS", "NONCE"], "logs": ["3"], "blockLogs": []}
    # A hash names its block, an index doesn't.
    assert body_of(**asked)["data"] == {"1": {f"transaction:{DIGEST}": {"transactions": {DIGEST: entry}}}}
    several = body_of(**asked | {"transactions": [DIGEST, "0"], "block": "15"})["data"]["1"]["block:15"]
    assert several == {"transactions": {DIGEST: entry, "0": entry}}
    with pytest.raises(click.UsageError, match="Name the block"):
        body_of(**asked | {"transactions": [DIGEST, "0"]})
    for tag in ("latest", "finalized"):
        with pytest.raises(
            click.UsageError, match=r"^Leave out --block: a transaction's hash already selects its block\.$"
        ):
            body_of(**asked | {"transactions": ["0", DIGEST], "block": tag})
    assert "latest" in body_of(**asked | {"transactions": ["0"], "block": "latest"})["data"]["1"]
    # Names of properties tell what each is of, if there are accounts and transactions.
    both = body_of(**asked, accounts=["0xaa"], block="15", block_logs=[17])["data"]["1"]["block:15"]
    assert both["accounts"] == {"0xaa": {"props": ["NONCE"], "slots": []}}
    assert both["transactions"][DIGEST] == {"props": ["STATUS"], "logs": ["3"], "blockLogs": ["17"]}


@pytest.mark.parametrize(
    ("options", "connections", "expected"),
    [
        ({}, [(1, 10)], ("10", ["1"])),
        ({"destination": 10}, [(1, 10), (1, 5)], ("10", ["1"])),
        ({"chain": 5}, [(1, 10), (5, 10)], ("10", ["5"])),
        ({"destination": 10, "chain": 7}, [(1, 10)], ("10", ["7"])),
        ({"destination": 10}, [(1, 10), (5, 10)], None),
        ({"destination": 7}, [(1, 10)], None),
        ({}, [], None),
    ],
)
def test_the_only_connection_is_meant_where_a_chain_is_not_named(tmp_path, options, connections, expected):
    (tmp_path / "accounts.csv").write_text("0xaa\n")
    for named in ({"accounts": ["0xaa"]}, {"file": str(tmp_path / "accounts.csv")}):
        question = {"block": "1", "props": ["BALANCE"], "connections": connections, **named, **options}
        if expected is None:
            with pytest.raises(click.UsageError):
                body_of(**question)
        else:
            body = body_of(**question)
            assert (body["destinationChainId"], [*body["data"]]) == expected


def test_amounts_are_in_whole_units_or_say_that_they_are_in_wei():
    for text, wei in (
        ("0", 0),
        ("0.002", 2 * 10**15),
        ("1.000000000000000001", 10**18 + 1),
        ("1000000", 10**24),
        ("5000wei", 5000),
        ("5000 WEI", 5000),
    ):
        assert read_amount(text) == wei
        assert read_fee(text) == str(wei)
    assert read_fee("auto") == "auto"
    for text in ("auto", "1e3", "-1", ".5", "1.0000000000000000001", "0.5wei", ""):
        with pytest.raises(click.BadParameter, match=r"is no amount: it is in ETH, such as 0\.002, or in wei"):
            read_amount(text)
    # In earlier versions a number without a unit meant wei.
    with pytest.raises(click.BadParameter, match="an amount in wei is written 2000000000000000wei"):
        read_fee("2000000000000000")


def test_a_file_leaves_to_options_only_what_is_said_once(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("BQS_API_KEY", KEY)
    file = tmp_path / "file"
    for content, option in (
        (f"{ALICE}\n", ("--account", B)),
        (f"{ALICE}\n", ("--transaction", "0")),
        (f"{ALICE}\n", ("--log", "0")),
        ('{"data": {}}', ("--block", "5")),
    ):
        file.write_text(content)
        code, _, errors = bqs_says(capsys, "submit", str(file), "--destination", "1", "--url", URL, *option)
        assert code == ExitCode.USAGE
        assert "either in a file or with options" in errors


def test_a_json_file_is_the_body(tmp_path, monkeypatch):
    file = tmp_path / "batch.json"
    body = {"destinationChainId": "1", "fee": "5", "data": {"1": {}}, "unknown": True}
    file.write_text(json.dumps(body))
    assert body_of(file=str(file)) == body
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"data": {}}')))
    assert body_of(file="-") == {"data": {}}


@pytest.mark.parametrize(
    "content", [b"{", b"{" * 100_000, b"", b"\xff", b"a,b\n", b"chain,block,account,props,colour\n"]
)
def test_a_file_that_is_none_is_said_in_a_sentence(tmp_path, capsys, monkeypatch, content):
    monkeypatch.setenv("BQS_API_KEY", KEY)
    file = tmp_path / "file"
    file.write_bytes(content)
    code, _, errors = bqs_says(capsys, "submit", str(file), "--destination", "1", "--url", URL)
    assert code == ExitCode.USAGE
    assert errors.strip().endswith((".", "header"))
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--destination", "1"],
        ["--destination", "1", "--chain", "1"],
        ["--destination", "1", "--chain", "1", "--account", "0xaa"],
        ["--destination", "1", "--chain", "1", "--account", "0xaa", "--block", "1"],
        ["--destination", "1", "--chain", "1", "--account", "0xaa", "--block", "soon", "--prop", "BALANCE"],
        ["--destination", "1", "--chain", "1", "--account", "0xaa", "--time", "soon", "--prop", "BALANCE"],
        ["--chain", "1", "--account", "0xaa", "--block", "1", "--prop", "BALANCE"],
        ["--destination", "1", "--chain", "1", "--transaction", "0x12", "--block", "1", "--prop", "STATUS"],
        ["--destination", "1", "--chain", "1", "--transaction", DIGEST],
        ["--destination", "1", "--chain", "1", "--transaction", "1", "--log", "0"],
        ["--destination", "1", "--chain", "1", "--block", "1", "--header", "TIMESTAMP", "--slot", "1"],
        ["--destination", "1", "--chain", "1", "--account", ALICE, "--block", "1", "--prop", "NONCE", "--log", "0"],
        f"--destination 1 --chain 1 --transaction {DIGEST} --transaction {B}{'0' * 24} --block-log 1".split(),
        ["--destination", "0"],
        ["no-such-file.json"],
        ["--no-such-option"],
    ],
)
def test_wrong_usage_exits_with_2_and_a_sentence(monkeypatch, capsys, arguments):
    monkeypatch.setenv("BQS_API_KEY", KEY)
    code, out, errors = bqs_says(capsys, "submit", *arguments, "--url", URL)
    assert (code, out) == (ExitCode.USAGE, "")
    assert errors.rstrip().endswith((".", "?"))  # an unknown option is answered with a question
    code, out, errors = bqs_says(capsys, "submit", *arguments, "--url", URL, "--json")
    assert json.loads(errors)["code"] == "usage"


def test_times_are_read_in_two_forms():
    assert read_time("1767225600") == read_time("2026-01-01T00:00:00Z") == read_time("2026-01-01") == 1767225600
    assert read_time("2026-01-01T01:00:00+01:00") == 1767225600


# --- Keys -------------------------------------------------------------------------------------------------------------


def test_without_a_service_or_a_key_it_says_how_to_get_them(capsys):
    code, _, errors = bqs_says(capsys, "list")
    assert code == ExitCode.USAGE
    assert "bqs login URL" in errors
    code, _, errors = bqs_says(capsys, "list", "--url", URL)
    assert code == ExitCode.NOT_ALLOWED
    assert f"bqs login {URL}" in errors


def test_read_without_a_batch_names_an_account_or_a_block(capsys, monkeypatch):
    monkeypatch.setenv("BQS_API_KEY", KEY)
    for filters in ([], ["--property", "BALANCE"], ["--chain", "1"]):
        code, _, errors = bqs_says(capsys, "read", "--url", URL, *filters)
        assert (code, "--account or --block" in errors) == (ExitCode.USAGE, True), errors


def test_a_key_is_kept_in_the_keyring_and_nowhere_else(tmp_path):
    ring = Memory()
    keyring.set_keyring(ring)
    assert credentials.remember(URL, KEY) == "this system's keyring"
    assert list(ring.kept.values()) == [KEY]
    assert credentials.service(None).url == URL
    assert credentials.api_key(URL) == KEY
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and KEY in path.read_text()]
    credentials.forget(URL)
    assert credentials.api_key(URL) == ""


@pytest.mark.parametrize("ring", [no_keyring(), Memory(locked=True)], ids=["none", "locked"])
def test_without_a_keyring_it_is_in_a_file_for_one_s_own_eyes_and_that_is_said(ring):
    keyring.set_keyring(ring)
    credentials.remember("https://another.example", "bqs_other")
    where = credentials.remember(URL, KEY)
    path = Path(re.findall(r"the file (\S+), because this system offers no keyring", where)[0])
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert credentials.api_key(URL) == KEY
    assert [entry.name for entry in path.parent.iterdir() if entry.name.startswith(".")] == []
    credentials.forget(URL)
    assert (credentials.api_key(URL), credentials.api_key("https://another.example")) == ("", "bqs_other")


def test_the_environment_counts_first(monkeypatch):
    credentials.remember(URL, KEY)
    monkeypatch.setenv("BQS_API_KEY", "bqs_from_environment\n")
    monkeypatch.setenv("BQS_URL", "https://another.example/")
    assert credentials.api_key(URL) == "bqs_from_environment"
    assert credentials.service_url(None) == "https://another.example"


@pytest.mark.parametrize("content", ["", "[]", "{", '{"url": 5}'])
def test_a_damaged_file_is_as_good_as_none(capsys, content):
    credentials.folder().mkdir()
    for name in ("config.json", "keys.json"):
        (credentials.folder() / name).write_text(content)
    assert bqs_says(capsys, "list")[0] == ExitCode.USAGE
    assert credentials.api_key(URL) == ""


def test_a_key_is_never_printed(monkeypatch, capsys):
    monkeypatch.setenv("BQS_API_KEY", KEY)
    monkeypatch.setenv("BQS_DEBUG", "1")
    printed = "".join(
        f"{out}{err}"
        for _, out, err in (bqs_says(capsys, command, "x", "--url", URL) for command in ("watch", "cancel"))
    )
    assert KEY not in printed + repr(credentials.service(URL)) + repr(credentials.service(URL).batch("x"))


def test_a_keystore_is_opened_with_its_password_alone(tmp_path):
    file, right, wrong = tmp_path / "key.json", tmp_path / "right", tmp_path / "wrong"
    file.write_text(
        json.dumps(Wallet.encrypt(bytes.fromhex(ALICE_KEY[2:]), "a password", kdf="pbkdf2", iterations=1000))
    )
    right.write_text("a password\n")
    wrong.write_text("another\n")
    assert open_keystore(file, right).address == ALICE
    with pytest.raises(click.UsageError, match="not the password of"):
        open_keystore(file, wrong)
    for content in ("", "{}", "[]", "x" * 100_000, '{"crypto": {}, "version": 3}'):
        file.write_text(content)
        with pytest.raises(click.UsageError, match="is no key file"):
            open_keystore(file, right)


@pytest.mark.parametrize(
    ("content", "opens"),
    [(b"\xef\xbb\xbfa password\r\n", True), ("a password\n".encode("utf-16"), False), (b"\xff\xfe", False)],
)
def test_a_file_of_another_system_is_read_or_refused_in_a_sentence(tmp_path, content, opens):
    file, password = tmp_path / "key.json", tmp_path / "password"
    encrypted = Wallet.encrypt(bytes.fromhex(ALICE_KEY[2:]), "a password", kdf="pbkdf2", iterations=1000)
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(encrypted).encode())
    password.write_bytes(content)
    if opens:
        assert open_keystore(file, password).address == ALICE
    else:
        with pytest.raises(click.UsageError, match=r"password is not UTF-8 text: save it as UTF-8\.$"):
            open_keystore(file, password)


BQS = (sys.executable, "-m", "batch_query_client.command_line")


@pytest.mark.long
def test_a_carriage_return_behind_a_value_does_not_count():
    variables = {"BQS_URL": "http://127.0.0.1:1\r\n", "BQS_API_KEY": f"{KEY}\r", "BQS_PATIENCE": "0\r"}
    done = subprocess.run([*BQS, "list\r"], env=os.environ | variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (ExitCode.UNAVAILABLE, "127.0.0.1:1 can't be reached.\n")


@pytest.mark.long
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
@pytest.mark.parametrize(
    ("arguments", "code"), [("--version", 0), ("list --url http://127.0.0.1:1", ExitCode.UNAVAILABLE)]
)
def test_a_closed_stream_is_no_defect(closed, arguments, code):
    command = f"{shlex.join(BQS)} {arguments} {closed}"
    variables = os.environ | {"BQS_API_KEY": KEY, "BQS_PATIENCE": "0"}
    done = subprocess.run(["sh", "-c", command], env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, "defect" in done.stderr + done.stdout) == (code, False)


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("estimate - --chain 1 --destination 1 <&- 2>&1", ExitCode.USAGE, "No line of the file asks for anything."),
        ("--help >/dev/full 2>&1", ExitCode.USAGE, ""),
        ("--help 2>&1 >/dev/full", ExitCode.USAGE, "The output: No space left on device."),
        ("list --nope 2>/dev/full", ExitCode.USAGE, ""),
        (
            "read $(printf '\\377') 2>&1",
            ExitCode.USAGE,
            "is not UTF-8 text: save it as UTF-8.",
        ),
    ],
)
def test_streams_that_take_or_have_nothing_end_in_a_sentence(command, code, said):
    variables = os.environ | {"BQS_API_KEY": KEY, "BQS_PATIENCE": "0", "BQS_URL": "\ufeffhttp://127.0.0.1:1"}
    line = f"{shlex.join(BQS)} {command}"
    done = subprocess.run(["sh", "-c", line], env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stdout) == (code, True)
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.long
def test_a_reader_that_ends_early_is_no_failure():
    line = f"{shlex.join(BQS)} --help | true; {{ {shlex.join(BQS)} --help; echo $? >&2; }} | true"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert done.stderr == "0\n"


def test_without_a_home_nothing_is_kept_and_that_is_said(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(credentials, "folder", lambda: Path("~/.config/bqs"))
    keyring.set_keyring(no_keyring())
    assert credentials.api_key(URL) == ""
    with pytest.raises(click.UsageError, match="no home folder"):
        credentials.remember(URL, KEY)
    assert list(tmp_path.iterdir()) == []


# --- Output -----------------------------------------------------------------------------------------------------------

FACT = Fact(
    source_chain_id=1,
    destination_chain_id=10,
    block_number=15,
    account=ALICE,
    property="BALANCE",
    word=(2**255 + 1).to_bytes(32),
    registry="0x" + "11" * 20,
)


def test_values_are_shown_whole_in_tables_and_in_json(capsys):
    slot = FACT.model_copy(update={"property": "SLOT", "slot": "0x" + "0" * 63 + "5"})
    unproven = FACT.model_copy(update={"property": "CODE_HASH", "word": None})
    nonce = FACT.model_copy(update={"property": "NONCE"})
    log = ShownLog(index=3, emitter=ALICE, topics=(b"\1" * 32,), data=b"\2")
    of_transaction = {"account": "", "transaction": ShownTransaction(index=7, hash=DIGEST)}
    event = FACT.model_copy(update={"property": "LOG", "log": log, **of_transaction})
    status = FACT.model_copy(update={"property": "STATUS", "word": (1).to_bytes(32), **of_transaction})
    named = slot.model_copy(update={"slot_name": {"slot": "0x2", "keys": ["7"], "layout": "vyper"}})
    print_facts([slot, named], {})
    out = capsys.readouterr().out
    assert "  slot 0x5 (5)  " in out
    assert "  slot 0x2[7]  " in out
    part = {"offset": 248, "size": 8, "form": "unsigned"}
    low = {"offset": 0, "size": 255, "form": "unsigned"}
    address = {"offset": 0, "size": 160, "form": "unsigned"}
    supply = {"call": "totalSupply()"}
    wrong_symbols: list[Any] = ["LEND: 5", "\x1b[31mLEND", "5,000", "LEND\n", ["LEND"], "A" * 10_000]
    whole, signed, in_hex = 2**255 + 1, 1 - 2**255, f"0x8{'0' * 62}1"
    namespace = 0x52C63247E1F47DB19D5CE0460030C497F067CA4CEBF71BA98EEADABE20BACE00
    named_slots: list[tuple[dict[str, Any], str, int]] = [
        ({"keys": [ALICE], "call": "balanceOf(address)"}, f"slot said to be balanceOf 0xf39F…2266  {whole}", whole),
        ({"keys": [ALICE], "call": "f(address)", "part": low}, "slot said to be f 0xf39F…2266  1", 1),
        ({"keys": [], **supply}, f"slot said to be totalSupply  {whole}", whole),
        ({"keys": [{"index": "3"}], "part": part}, "slot 0x2[index 3]  128", 128),
        ({"keys": ["1"], "part": part | {"form": "signed"}}, "slot 0x2[1]  -128", -128),
        ({"keys": ["1"], "part": part | {"form": "left"}}, "slot 0x2[1]  0x80", 128),
        ({"keys": ["1"], "part": part | {"form": "bool"}}, "slot 0x2[1]  true", 1),
        ({"keys": [], **supply, "part": part | {"form": "bool"}}, "slot said to be totalSupply  1", 1),
        ({"keys": [], **supply, "part": part | {"form": "left"}}, f"totalSupply  {2**255}", 2**255),
        ({"keys": [], **supply, "part": address}, "slot said to be totalSupply  1", 1),
        ({"keys": ["1"], "part": part | {"size": 9}}, f"slot 0x2[1]  {in_hex}", whole),
        ({"keys": ["1"], "part": part | {"form": "new"}}, f"slot 0x2[1]  {in_hex}", whole),
        ({"keys": ["1"], "part": address}, f"slot 0x2[1]  0x{1:040x}", 1),
        ({"keys": ["1"], "part": address, "decimals": 6}, "slot 0x2[1]  1", 1),
        (
            {"keys": [ALICE], "call": "balanceOf(address)", "decimals": 18, "symbol": "LEND", "part": low},
            "LEND balance of 0xf39F…2266  0.000000000000000001 LEND",
            1,
        ),
        ({"keys": [], **supply, "decimals": 0, "symbol": "LEND"}, f"LEND total supply  {whole:,} LEND", whole),
        (
            {"keys": [{"key": "Bob: 5", "type": "string"}], "call": "balanceOf(address)", "symbol": "LEND"},
            f'slot said to be balanceOf "Bob: 5"  {whole}',
            whole,
        ),
        ({"keys": [], **supply, "symbol": "LEND"}, f"LEND total supply  {whole}", whole),
        # The service takes no such symbols.
        *(
            ({"keys": [], **supply, "decimals": 0, "symbol": symbol}, f"slot said to be totalSupply  {whole}", whole)
            for symbol in wrong_symbols
        ),
        ({"keys": [], **supply, "decimals": "9" * 9, "symbol": "LEND"}, f"LEND total supply  {whole}", whole),
        (
            {"slot": f"{ALICE.lower()}{'87a211a2':0>24}", "keys": [{"index": "0"}], "call": "balanceOf(address)"},
            f"slot said to be balanceOf 0xf39F…2266  {whole}",
            whole,
        ),
        ({"keys": [ALICE], "call": "pnl(address)(int256)"}, f"said to be pnl 0xf39F…2266  {signed}", signed),
        ({"keys": [], "call": "price()(uint160)", "part": address}, "slot said to be price  1", 1),
        ({"keys": [], "call": "owner()(address)"}, f"slot said to be owner  0x{1:040x}", 1),
        (
            {"keys": [], "call": "owner()(address)", "part": address | {"size": 96}},
            f"slot said to be owner  0x{1:040x}",
            1,
        ),
        ({"keys": [], "call": "tag()(bytes1)"}, "slot said to be tag  0x80", 128),
        ({"keys": [], "call": "root()(bytes32)"}, f"slot said to be root  {in_hex}", whole),
        ({"keys": [], "call": "isOpen()(bool)", "part": part}, "slot said to be isOpen  true", 1),
        ({"keys": [], "call": "root()(bytes33)"}, f"slot said to be root  {whole}", whole),
        (
            {"slot": f"{namespace + 1:#x}", "keys": ["1"], "part": low},
            f"slot {namespace + 1:#x} (erc7201:openzeppelin.storage.ERC20 + 1)[1]  1",
            1,
        ),
    ]
    for stated, shown, number in named_slots:
        each = slot.model_copy(update={"slot_name": {"slot": "0x2", "layout": "solidity", **stated}})
        print_facts([each], {})
        out, errors = capsys.readouterr()
        assert re.sub(" {2,}", "  ", out).rstrip().endswith(shown)
        claim = "What tokens call themselves is their own claim, which nothing proves: LEND.\n"
        assert errors == claim * (stated.get("symbol") == "LEND")
        print_json(each)
        in_json = json.loads(capsys.readouterr().out)
        assert (in_json["value"], in_json["slotName"]) == (str(number), each.slot_name)
        assert each.value == number
    print_facts([FACT, slot, unproven, nonce, event, status], {1: "xDAI"})
    out = capsys.readouterr().out
    assert f"{(2**255 + 1) // 10**18}.{(2**255 + 1) % 10**18} xDAI" in out
    assert f"{2**255 + 1}\n" in out
    assert f"0x8{'0' * 62}1" in out
    assert "not proven yet" in out
    about = f"transaction 7 {DIGEST}"
    told_log = f"by {ALICE}, topics 0x{'01' * 32}, data 0x02"
    assert re.search(rf"{about} +log 3 +{told_log}\n.*{about} +STATUS +1$", out.rstrip())
    assert len(out.splitlines()) == 7
    print_json([event])
    (told,) = json.loads(capsys.readouterr().out)
    assert told["log"] == {"index": "3", "emitter": ALICE, "topics": [f"0x{'01' * 32}"], "data": "0x02"}
    assert (told["transaction"], told["account"]) == ({"index": "7", "hash": DIGEST}, None)
    print_json([FACT])
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["sourceChainId"], told["value"], told["word"]) == ("1", str(2**255 + 1), f"0x8{'0' * 62}1")


def test_amounts_are_in_whole_units_and_costs_are_no_less_than_they_are():
    assert [amount(wei) for wei in (0, 1, 15 * 10**16, 20 * 10**18)] == [
        "0 ETH",
        "0.000000000000000001 ETH",
        "0.15 ETH",
        "20 ETH",
    ]
    assert cost(1_234_567_000_000_000) == "0.00123457 ETH"
    assert cost(123, "POL") == "0.000000000000000123 POL"
    assert cost(10**18 + 1) == "1.00001 ETH"


def test_text_of_others_is_shown_as_text(capsys):
    print_table(("name",), [("[red]a[/red]\x1b[2J\u202e\nb",)])
    assert capsys.readouterr().out.splitlines()[1].strip() == "[red]a[/red] [2J b"
    # The second mark is a stem of a note, whose category is that of marks with a width of their own.
    for mark in ("\u0301", "\U0001d165"):
        print_table(("name",), [("a" + mark * 99 + "b",)])
        assert capsys.readouterr().out.splitlines()[1].strip() == "a" + mark * 4 + "b"


def test_without_a_terminal_each_wait_is_told_once(capsys):
    about: dict[str, Any] = {"internal_id": "b", "status": "RECEIVED", "query_status": "IN_PROGRESS"}
    batch = BatchDetails(**about, destination_chain_id=1, created_at=datetime.now(UTC))
    told = [[], [Wait(sentence="At 5.", code="a")], [Wait(sentence="At 6.", code="a"), Wait(sentence="Other.")], []]
    for is_json, expected in (False, ["At 5.", "Other."]), (True, []):
        with progress(is_json=is_json) as show:
            for waits in (*told, *told):
                show(batch.model_copy(update={"waits": tuple(waits)}))
        assert capsys.readouterr().err.split("\n")[:-1] == expected


def test_every_error_has_an_exit_code_and_the_documentation_each_of_them():
    kinds = [getattr(batch_query_client, name) for name in dir(batch_query_client)]
    errors = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, batch_query_client.BatchQueryError)]
    errors.remove(batch_query_client.BatchQueryError)
    assert len(errors) > 15
    assert {exit_code(kind.__new__(kind)) for kind in errors} == set(ExitCode) - {
        *(ExitCode.OK, ExitCode.DEFECT, ExitCode.INTERRUPTED)
    }
    page = (PROJECT / "docs/using/command-line.md").read_text()
    assert not [code for code in exit_codes.ExitCode if not re.search(rf"^\| {code.value} \|", page, re.MULTILINE)]


def test_an_advice_is_waited_for_unless_the_user_sets_a_patience(monkeypatch):
    for set_seconds, seconds, advised in (("", 15, 75), ("2", 2, 0)):
        monkeypatch.setenv("BQS_PATIENCE", set_seconds)
        patience = credentials.service(URL, needs_key=False)._access.patience
        assert (patience.seconds, patience.advised_seconds) == (seconds, advised)


def test_the_estimate_before_a_submission_is_asked_for_once_whatever_the_patience(monkeypatch, capsys):
    monkeypatch.setenv("BQS_API_KEY", KEY)
    monkeypatch.setenv("BQS_PATIENCE", "60")
    bodies: list[Any] = []

    def answer(_: Any) -> Any:
        return Raw(b"{}", status=503) if len(bodies) == 1 else {"internalId": "01M7W1MRHW703BTRFFPT53VVP5"}

    asked = ("--destination", "1", "--chain", "1", "--block", "9", "--transaction", "0", "--log", "9")
    with lying_node(recording(bodies, answer)) as url:
        code, *_ = bqs_says(capsys, "submit", *asked, "--url", url)
    # The second body is the submission's.
    assert (code, len(bodies)) == (0, 2)


def test_a_service_that_is_down_ends_with_4(capsys):
    code, _, errors = bqs_says(capsys, "chains", "--url", URL)
    assert (code, errors) == (ExitCode.UNAVAILABLE, "127.0.0.1:1 can't be reached.\n")
    code, _, errors = bqs_says(capsys, "chains", "--url", URL, "--json")
    assert json.loads(errors) == {"error": "127.0.0.1:1 can't be reached.", "code": "unavailable"}


@pytest.mark.parametrize("code", ["unauthorized", "read_only_key", "invalid_idempotency_key", "idempotency_key_reused"])
def test_errors_speak_of_options_and_commands_and_not_of_headers_and_paths(code):
    refused = ServiceRefused("The header Api-Key or Idempotency-Key.", status=422, code=code)
    report = _report(refused)
    assert re.search("BQS_API_KEY|--idempotency-key", report.sentence)
    assert (report.code, "header" in report.sentence) == (code, False)
    refused = ServiceRefused("Chain 9 is not here; see /chain-connections.", status=400, code="unsupported")
    assert _report(refused).sentence == "Chain 9 is not here; see `bqs chains`."


def test_a_defect_and_ctrl_c_are_sentences_too(monkeypatch, capsys):
    def fails(_: object) -> None:
        raise ZeroDivisionError("a defect")

    def is_interrupted(_: object) -> None:
        raise KeyboardInterrupt

    for raises, code, sentence in (
        (fails, ExitCode.DEFECT, "This is a defect of bqs: ZeroDivisionError in test_command_line.py, line "),
        (is_interrupted, ExitCode.INTERRUPTED, "Interrupted."),
    ):
        monkeypatch.setattr(credentials, "service_url", raises)
        exit_code, out, errors = bqs_says(capsys, "chains")
        assert (exit_code, out) == (code, "")
        assert errors.strip().startswith(sentence)
        assert "Traceback" not in errors


def test_every_command_and_option_is_explained():
    for name, command in bqs.commands.items():
        assert command.help, name
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help or parameter.name == "timeout", (name, parameter.name)
    page = (PROJECT / "docs/using/command-line.md").read_text()
    assert not [name for name in bqs.commands if f"`bqs {name}" not in page]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_it(capsys, shell):
    code, out, _ = bqs_says(capsys, "completion", shell)
    assert code == 0
    assert f"_BQS_COMPLETE={shell}_complete" in out


def test_every_line_that_is_wrong_is_named(tmp_path):
    file = tmp_path / "accounts.csv"
    file.write_text(
        "chain,block,account,props\nx,15,0xaa,BALANCE\n1,soon,0xaa,BALANCE\n1,15,,\n1,15,0xaa,NONCE\n1,1,a,b,c,d\n"
        ",1,0xaa,BALANCE\n1,,0xaa,BALANCE\n"
    )
    with pytest.raises(click.UsageError) as caught:
        body_of(file=str(file), destination=10)
    numbers = re.findall(r"line (\d): ", caught.value.message)
    assert list(dict.fromkeys(numbers)) == ["2", "3", "4", "6", "7", "8"]


def test_a_transfer_of_eth_is_named(capsys):
    topics = (keccak(text="Transfer(address,address,uint256)"), bytes(12) + b"\1" * 20, bytes(12) + b"\2" * 20)
    transfer = ShownLog(index=0, emitter="0x" + "f" * 39 + "E", topics=topics, data=(7).to_bytes(32))
    token = transfer.model_copy(update={"emitter": "0x" + "f" * 40})
    assert log_content(transfer).startswith(f"ETH transfer of 7 wei from 0x{'01' * 20} to 0x{'02' * 20}, by 0xff")
    assert log_content(token).startswith("by 0xff")
