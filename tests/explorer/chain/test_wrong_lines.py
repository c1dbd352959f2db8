"""Lines with faults of every stage, which one answer names: of the API, the form, a table in it, and `bqs`."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from html import unescape
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from batch_query_client.command_line.running import run
from devnet.devchain import DevChain
from proving.models import ChainWatch
from queries.models import Batch
from tests.names import Names
from tests.service import ALICE, BOB, asking, chains_toml, header, secret_of

pytestmark = pytest.mark.outside


def account(number: int) -> str:
    return f"0x{number:040x}"


COLUMNS = "address,block,properties,slots,header,chain,colour"
# Each line with a part of its sentence. An empty one belongs to a line without a fault.
LINES: Mapping[str, str] = {
    COLUMNS: "'colour'",
    f"{ALICE},15": "",
    "0x12,15": "'0x12' has 2 hexadecimal digits after 0x",
    "0x13,latest": "'0x13' has 2 hexadecimal digits after 0x",
    f"0x{'z' * 40},15": "is no address",
    f"{BOB.replace('C', 'c', 1)},15": "has a wrong EIP-55 checksum",
    "zz,15": "'zz'",
    "nobody.eth,15": "the name 'nobody.eth' has no",
    "a_b..eth,15": "the name 'a_b..eth'",
    f"{account(1)},99999999": "blocks above the newest one, 100.",
    f"{account(2)},soon": "'soon' is no",
    f"{account(9)},{'9' * 20}": f"'{'9' * 20}'",
    f"{account(3)},15,WEIGHT": "'WEIGHT'",
    f"{account(4)},15,,xyz": "'xyz'",
    ",15,,,GAS": "'GAS'",
    f"{account(6)},15,,,,Moon": "chain",
    f"{account(7)},16": "",
    "0x14,noon": "'noon' is no",
    f"{account(8)},15,,,,31337,red,blue": "cells",
}
TEXT = "\n".join(LINES)


@pytest.fixture(scope="module")
def names() -> Iterator[Names]:
    with DevChain() as chain:
        yield Names(chain)


@pytest.fixture
def resolving(names: Names, key, settings, tmp_path) -> None:
    """Configure a chain that has ENS names, and whose head a worker has seen."""
    path = chains_toml(tmp_path, names.chain.url)
    path.write_text("[ens]\nchain = 31337\n" + path.read_text())
    settings.CHAINS_FILE = path
    ChainWatch.objects.create(chain_id=31337, number=100, timestamp=5, seen_at=timezone.now())


def named(sentences: list[str]) -> dict[int, str]:
    """Return what is said about each line."""
    told: dict[int, str] = defaultdict(str)
    for sentence in sentences:
        numbers = re.search(r"\blines? ([\d, ]*\d)", sentence, re.IGNORECASE)
        assert numbers, sentence
        for number in numbers[1].split(", "):
            told[int(number)] += sentence.casefold()
    return told


def check(told: dict[int, str]) -> None:
    """Compare with the table: exactly the lines with faults are named, and each with its words."""
    expected = {number: words.casefold() for number, words in enumerate(LINES.values(), 1) if words}
    assert sorted(told) == sorted(expected)
    assert {number: words for number, words in expected.items() if words not in told[number]} == {}
    assert not Batch.objects.exists()


@pytest.mark.parametrize("is_file", [False, True])
@pytest.mark.usefixtures("resolving")
def test_the_form_names_every_line_of_a_table(alice, is_file):
    pasted: Any = {"file": SimpleUploadedFile("x.csv", TEXT.encode())} if is_file else {"pasted": TEXT}
    fields = {"destination": "31337", "sender": "service", "fee": "", "token": "t", "do": "paste", **pasted}
    row = {"rows-0-source": "31337", "rows-0-at": "latest", "rows-0-props": ["BALANCE"]}
    answer = alice.post("/new-batch", fields | row)
    assert answer.status_code == 400
    told = named(re.findall(r'href="#id_pasted">[^<]*</a>: (.*?)</li>', unescape(answer.text)))
    check(told)
    assert "'0x14' has 2 hexadecimal digits" in told[[*LINES].index("0x14,noon") + 1]


@pytest.mark.long("submit")
@pytest.mark.parametrize("command", ["submit", "estimate", "proofs"])
@pytest.mark.usefixtures("resolving")
def test_the_command_line_names_every_line_of_a_file(live_server, key, monkeypatch, tmp_path, capsys, command):
    for name, value in {"URL": live_server.url, "API_KEY": secret_of(key), "PATIENCE": "0"}.items():
        monkeypatch.setenv(f"BQS_{name}", value)
    (tmp_path / "asked.csv").write_text(TEXT)
    options = ["--destination", "31337", "--chain", "31337", "--prop", "BALANCE"]
    assert run([command, str(tmp_path / "asked.csv"), *options]) == 2
    check(named(re.findall(r"(?m)^  (lines? .*)$", capsys.readouterr().err)))
    # If the service alone finds faults, programs get its code and details too.
    (tmp_path / "asked.csv").write_text(f"address,block\n{ALICE},99999999\n0x12,99999999\n{BOB},15\n")
    assert run([command, str(tmp_path / "asked.csv"), *options, "--json"]) == 2
    told = json.loads(capsys.readouterr().err)
    assert sorted(named(told["error"].splitlines()[1:])) == [2, 3]
    assert (told["code"], len(told["details"])) == ("invalid_request", 2)
    assert run([command, *options, "--block", "99999999", "--account", ALICE]) == 2
    far = "Block 99999999 of chain 31337 is 99,999,899 blocks above the newest one, 100. A batch waits for at most 64 "
    assert capsys.readouterr().err == f"{far}blocks. Send it again when the block is nearer.\n"


@pytest.mark.parametrize("words", [("0x12", "0x13", "zz"), ("zz", "0x12", "0x13"), ("0x12", "zz", "0x13")])
@pytest.mark.usefixtures("resolving")
def test_each_word_of_a_list_is_named_where_it_is_pasted_and_where_it_is_typed(alice, words):
    fields = {"destination": "31337", "sender": "service", "fee": "", "token": "t"}
    row = {"rows-0-source": "31337", "rows-0-at": "latest", "rows-0-props": ["BALANCE"]}
    pasted = alice.post("/new-batch", {**fields, **row, "pasted": "\n".join(words), "do": "paste"})
    told = named(re.findall(r'href="#id_pasted">[^<]*</a>: (.*?)</li>', unescape(pasted.text)))
    assert [word in told[number] for number, word in enumerate(words, 1)] == [True] * 3
    # Faults that the form finds hide none of those that the API finds.
    more = {
        "rows-0-accounts": " ".join((*words, "nobody.eth")),
        "rows-0-slots": '{"slot": "1", "slot": "2", "keys": ["1"]}\n{"slot": "x", "keys": ["y"]} \nxyz',
        "rows-0-transactions": "0xab 65536 cd",
        "rows-0-tx_props": ["STATUS"],
        "rows-0-logs": "65536 -1",
        "fee": "much",
        "webhook": "ftp://x",
    }
    answer = alice.post("/new-batch", {**fields, **row, **more, "do": "submit"})
    assert answer.status_code == 400
    faults = re.findall(r'<li><a href="#([^"]+)">[^<]*</a>: (.*?)</li>', unescape(answer.text))
    quoted = [(control.removeprefix("id_rows-0-"), re.findall("'([^' ]*)'", sentence)) for control, sentence in faults]
    assert sorted(quoted, key=str) == sorted(
        [
            *(("accounts", [word]) for word in (*words, "nobody.eth")),
            *(("slots", [word]) for word in ("slot", "x", "y", "xyz")),
            *(("transactions", [word]) for word in ("0xab", "65536", "cd")),
            *(("logs", [word]) for word in ("65536", "-1")),
            ("id_fee", []),
            ("id_webhook", []),
        ],
        key=str,
    )


@pytest.mark.parametrize("path", ["/submit-batch-query", "/submit-request", "/estimate-batch-query", "/read-proofs"])
@pytest.mark.usefixtures("resolving")
def test_the_api_points_to_every_fault(client, key, path):
    balance = {"props": ["BALANCE"]}
    wrong = dict.fromkeys(["0x12", f"0x{'z' * 40}", BOB.replace("C", "c", 1), "zz", "nobody.eth", "a_b..eth"], balance)
    of_entries = {f"block:{number}": {"transactions": {"0": {"props": ["STATUS"]}}} for number in range(26)}
    blocks: dict[str, Any] = {
        **of_entries,
        "block:50": {"accounts": {**wrong, account(1): {"props": ["WEIGHT"], "slots": ["xyz"]}}, "header": ["GAS"]},
        "block:99999999": {"accounts": {account(2): balance}},
        "block:soon": {"accounts": {account(3): balance, account(4): {}}},
    }
    body = asking(blocks) | {"surprise": 1}
    body["data"]["5"] = {"latest": {"accounts": {"0x14": balance}}}
    if path == "/submit-request":
        body["destination_chain_id"] = body.pop("destinationChainId")
    answer = client.post(path, json.dumps(body), "application/json", headers=header(key))
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    at = "/data/31337/block:50/accounts"
    assert sorted(fault["path"] for fault in answer.json()["details"]) == sorted(
        [
            *(f"{at}/{word}" for word in wrong),
            *(f"{at}/{account(1)}/props/0", f"{at}/{account(1)}/slots/0", "/data/31337/block:50/header/0"),
            *("/data/31337/block:99999999", "/data/31337/block:soon", f"/data/31337/block:soon/accounts/{account(4)}"),
            *("/data/5", "/data/5/latest/accounts/0x14", "/surprise", "/data"),
        ]
    )
    assert not Batch.objects.exists()
