"""Logs on a batch's page, decoded by the signature of an event that a reader types."""

import gc
import random
import re
import sys
import time
from collections.abc import Callable
from html import unescape
from itertools import permutations
from typing import Any

import pytest
from django.test import Client
from eth_abi.abi import encode
from eth_abi.grammar import parse
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from queries.models import Batch, StepKind
from tests.explorer import batches
from tests.explorer.pages import text_of
from tests.service import ALICE, BOB

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

ALICE_IN_A_TOPIC = bytes.fromhex(ALICE[2:]).rjust(32, b"\0")


def a_log(event: str, *topics: bytes, data: bytes = b"") -> list[Any]:
    """Return a log of this event, as a receipt holds it. An anonymous event is empty."""
    first = [keccak(event.encode())] if event else []
    return [bytes.fromhex(BOB[2:]), [*first, *topics], data]


def batch_about(*logs: Any) -> Batch:
    """Return a DONE batch about these logs of a transaction."""
    numbers = list(map(str, range(len(logs))))
    batch = batches.batch_at(block_12={"transactions": {batches.TRANSACTION: {"logs": numbers}}})
    batches.fetch_proofs(batch, logs)
    batches.accept(batch)
    batches.complete(batch, *StepKind)
    return batch


def shown(batch: Batch, **parameters: Any) -> str:
    """Return the text of the page of the batch's query."""
    response = Client().get(f"{batches.path(batch)}/1", parameters)
    assert response.status_code == 200
    return " ".join(unescape(text_of(response.text)).split())


def shown_logs(*logs: Any, **parameters: Any) -> str:
    return shown(batch_about(*logs), **parameters)


def eth_transfer(value: int) -> Any:
    return [bytes.fromhex("ff" * 19 + "fe"), *batches.transfer(value)[1:]]


ANOTHER, NO_EVENT = "its topic 0 differs.", "This is not an event's signature with types that pages decode"
NOT_ITS_DATA = "The log's data doesn't fit this event."
PAIR = a_log("T(address,string)", ALICE_IN_A_TOPIC, data=encode(["string"], ["<b>é</b>"]))
DECODED = [
    (
        batches.transfer(5),
        f"event {batches.TRANSFER};",
        f"Transfer from address {ALICE} to address {BOB} value uint256 5",
    ),
    (
        batches.transfer(5),
        "Transfer(address indexed,address indexed,uint)",
        f"Transfer address {ALICE} address {BOB} uint256 5",
    ),
    (
        batches.transfer(5),
        batches.TRANSFER.replace("indexed ", ""),
        "This event has 0 indexed values, and this log has 2",
    ),
    (batches.transfer(5), batches.TRANSFER.replace("256", "8"), ANOTHER),
    (PAIR, "T(address indexed payable, string)", f"T payable address {ALICE} string <b>é</b>"),
    (a_log("T(string)", bytes(32)), "T(string indexed s)", f"s string 0x{'00' * 32} the keccak-256 of the value"),
    (a_log("T(bytes)", bytes(32)), "T(bytes indexed b)", f"b bytes 0x{'00' * 32} the keccak-256 of the value"),
    (a_log("T(string)", data=encode(["bytes"], [b"\xff"])), "T(string s)", "s string \ufffd"),
    (a_log("T(bool,int8)", data=encode(["bool", "int8"], [True, -1])), "T(bool a, int8 b)", "a bool true b int8 -1"),
    (a_log("T(address[])", data=encode(["address[]"], [[ALICE, BOB]])), "T(address[] c)", f"[{ALICE}, {BOB}]"),
    (
        a_log("T(uint256[])", ALICE_IN_A_TOPIC),
        "T(uint[] indexed a)",
        f"{ALICE.lower()[2:]} the keccak-256 of the value",
    ),
    (a_log("", ALICE_IN_A_TOPIC, data=b"\0" * 31 + b"\7"), "T(address indexed a, uint b) anonymous", "b uint256 7"),
    (a_log("", ALICE_IN_A_TOPIC), "T(address indexed a)", ANOTHER),
    (a_log("P()"), "P()", "event P"),
    (a_log("T(uint256)"), "T(uint256)", NOT_ITS_DATA),
    (a_log("T(string)", data=b"\xff" * 64), "T(string)", NOT_ITS_DATA),
    (a_log("T(bytes2)", data=encode(["bytes2"], [b"ab"])), "T(bytes2)", "bytes2 0x6162"),
    (a_log("T(string)", data=encode(["uint256"] * 2, [32, 1]) + b"a"), "T(string)", NOT_ITS_DATA),
    (a_log("T(bytes)", data=encode(["uint256"] * 3, [32, 40, 1])), "T(bytes)", NOT_ITS_DATA),
    # No machine can read so many bytes.
    (a_log("T(bytes)", data=encode(["uint256"] * 2, [32, 2**255])), "T(bytes)", NOT_ITS_DATA),
    *(
        (a_log(f"T({kind})", data=value.to_bytes(32, signed=value < 0)), f"T({kind})", NOT_ITS_DATA)
        for kind, value in (
            *(("uint8", 256), ("int8", 128), ("int8", -129), ("address", 2**160), ("bool", 2), ("bytes31", 1)),
            *(("string[]", 2**255), ("string[]", 0), ("bytes", 2**64)),
        )
    ),
    *(
        (PAIR, text, NO_EVENT)
        for text in (
            "x",
            "T(foo)",
            "T(uint7)",
            "T(uint a,)",
            "T(uint",
            "T((uint)",
            "T((uint a))",
            "T(uint[2] a)",
            "T(uint[][] a)",
            "T(fixed8x2)",
            "T(uint7)",
            "T(uint 7)",
            "T(uint a b)",
            "T(indexed)",
            "\0",
            "T(hash32)",
            "T(bytes33)",
        )
    ),
]


@pytest.mark.parametrize(("log", "event", "sentence"), DECODED, ids=map(str, range(len(DECODED))))
def test_a_log_is_decoded_by_the_event_that_a_reader_types(log, event, sentence):
    shown = shown_logs(log, event=event)
    assert sentence in shown
    assert f"emitter 0x{log[0].hex()} " in shown.lower()


TOKEN_7 = [*batches.transfer(7)[1], (7).to_bytes(32)]
KNOWN = [
    (batches.transfer(5), f"{batches.TRANSFER} from address {ALICE} to address {BOB} value uint256 5"),
    # Its topic 0 is the same, and another value is indexed.
    ([batches.transfer(7)[0], TOKEN_7, b""], f"from address {ALICE} to address {BOB} tokenId uint256 7"),
    (
        a_log("Upgraded(address)", ALICE_IN_A_TOPIC),
        f"Upgraded(address indexed implementation) implementation address {ALICE}",
    ),
]


@pytest.mark.parametrize("event", ["", batches.TRANSFER], ids=["known", "typed"])
def test_a_transfer_of_eth_is_no_tokens(event):
    page = shown_logs(eth_transfer(5), **({"event": event} if event else {}))
    assert f"ETH transfer which the chain itself logged (EIP-7708); no token from address {ALICE}" in page
    assert "event Transfer" not in page


@pytest.mark.parametrize(("log", "sentence"), KNOWN, ids=map(str, range(len(KNOWN))))
def test_a_known_event_is_decoded_before_a_reader_types_anything(log, sentence):
    batch = batch_about(log)
    html = Client().get(f"{batches.path(batch)}/1").text
    assert sentence in shown(batch)
    # The values come first, each with a button to copy it, and addresses lead on.
    decoded, raw = html.index('class="t plain decoded"'), html.index("Topics and data")
    table = html[decoded:raw]
    assert table.count('class="copy"') == table.count("<tr>") + 1
    assert f'href="/facts?account={ALICE}"' in table
    assert re.search(r'<details id="raw-1-1">\s*<summary>Topics and data', html)
    assert f'<option value="{batches.TRANSFER}">' in html


def test_a_log_of_another_form_is_no_transfer_of_eth():
    assert "ETH transfer" not in shown_logs([*eth_transfer(5)[:2], b""])


# Anybody can find an address that begins, or ends, like the emitter of such logs.
@pytest.mark.parametrize("emitter", ["ff" * 20, "ff" * 18 + "00fe", "00" + "ff" * 18 + "fe", "ff" * 10 + "fe" * 10])
def test_a_token_with_almost_the_address_of_eth_transfers_is_a_token(emitter):
    page = shown_logs([bytes.fromhex(emitter), *eth_transfer(5)[1:]])
    assert "ETH transfer" not in page
    assert "event Transfer" in page


@pytest.mark.parametrize("log", [a_log("T()"), a_log("Upgraded(address)"), a_log("", ALICE_IN_A_TOPIC), a_log("")])
def test_a_log_that_fits_no_known_event_shows_its_topics(log):
    html = Client().get(f"{batches.path(batch_about(log))}/1").text
    assert '<details id="raw-1-1" open>' in html
    assert "decoded" not in html


def test_thousands_of_logs_cost_a_page_no_more_than_fifty():
    logs = [batches.transfer(value) for value in range(120)]
    first, last = shown_logs(*logs), shown_logs(*logs, slots="3")
    assert "Logs 1 to 50 of 120" in first
    assert (first.count(" emitter "), last.count(" emitter ")) == (50, 20)
    assert "log 119 " in last


def test_of_long_data_a_part_is_shown():
    assert "and 976 bytes more" in shown_logs(a_log("T()", data=bytes(2000)))


def test_of_the_marks_at_a_character_four_are_shown():
    event, text = "Named(string)", "a" + "\u0301" * 50 + "b" + "\u20dd" * 50 + "c\u0301"
    text_shown = shown_logs(a_log(event, data=encode(["string"], [text])), event=event)
    assert "a" + "\u0301" * 4 + "b" + "\u20dd" * 4 + "c\u0301" in text_shown


# --- Work -------------------------------------------------------------------------------------------------------------


def words(*numbers: int) -> bytes:
    return encode(["uint256"] * len(numbers), numbers)


# Each is as long as a page decodes. Pointers of a list lead to the same long text.
COSTLY = [
    ("address[]", words(32, 1022, *range(1022))),
    ("uint[]" + ",uint[]" * 9, words(*[320] * 10, 91, *range(91))),
    (",".join(["address"] * 49), words(*range(1024))),
    ("string[]", words(32, 511, *[511 * 32] * 511, 510 * 32, *[0] * 510)),
]


def calls(batch: Batch, **parameters: Any) -> int:
    """Return the number of functions that the page calls, which doesn't depend on the machine."""
    count = 0

    def profile(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(profile)
    try:
        shown(batch, **parameters)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.long
@pytest.mark.parametrize(("types", "data"), COSTLY, ids=map(str, range(len(COSTLY))))
def test_decoding_costs_less_than_the_rest_of_a_page_of_logs(types, data):
    batch = batch_about(*[a_log("", data=data)], *[PAIR] * 49)
    calls(batch)
    assert calls(batch, event=f"E({types})anonymous") < 2 * calls(batch)


def seconds(batch: Batch, **parameters: Any) -> float:
    """Return the processor seconds of the page, the least of several."""
    taken = []
    for _ in range(4):
        began = time.thread_time()
        shown(batch, **parameters)
        taken.append(time.thread_time() - began)
    return min(taken)


def test_white_space_in_a_signature_costs_nothing():
    batch = batch_about(PAIR)
    seconds(batch)
    assert seconds(batch, event=f"E(){' ' * 480}x") < 2 * seconds(batch)


@pytest.mark.long
def test_no_signature_stays_in_memory():
    batch = batch_about(PAIR)

    def kept() -> int:
        """Return the number of the library's objects that are in memory."""
        gc.collect()
        return sum(type(kept).__module__.startswith(("eth_abi", "parsimonious")) for kept in gc.get_objects())

    types = ["uint8", "uint16", "int24[]", "bytes", "string[]", "bytes7"]
    shown(batch, event=f"E({','.join(types)})")
    before = kept()
    for some in permutations(types, 3):
        shown(batch, event=f"E({','.join(some)})")
    assert kept() <= before


def test_a_page_decodes_32_kib_of_its_logs_data():
    event, log = "E(uint256[])", a_log("E(uint256[])", data=words(32, 400, *range(400)))
    text = shown_logs(*[log] * 4, PAIR, a_log("E(uint256[])", data=words(32, 0)), event=event)
    assert text.count("uint256[] [0, 1, 2,") == 2
    assert text.count("A page decodes at most 32,768 bytes of its logs' data") == 2
    # Logs of other events take no room, and a short log still fits.
    assert "uint256[] []" in text
    assert text.count(ANOTHER) == 1


@pytest.mark.parametrize(
    ("count", "sentence"), [(500, "uint256[] [0, 1, 2,"), (600, "A page decodes at most 32,768 bytes")]
)
def test_a_page_counts_data_once_for_each_list_that_may_lead_to_it(count, sentence):
    event = "E(uint256[],uint256[])"
    assert sentence in shown_logs(a_log(event, data=words(64, 64, count, *range(count))), event=event)


# --- Values -----------------------------------------------------------------------------------------------------------


def made_up_type(chance: random.Random) -> str:
    size = chance.randrange(1, 33)
    kinds = ["address", "bool", "string", "bytes", f"int{8 * size}", f"uint{8 * size}", f"bytes{size}"]
    return chance.choice(kinds) + chance.choice(["", "[]"])


def made_up_value(chance: random.Random, kind: Any) -> Any:
    if kind.is_array:
        return [made_up_value(chance, kind.item_type) for _ in range(chance.randrange(5))]
    size = kind.sub or chance.randrange(40)
    make: dict[str, Callable[[], Any]] = {
        "address": lambda: f"0x{chance.getrandbits(160):040x}",
        "bool": lambda: chance.choice([True, False]),
        "bytes": lambda: chance.randbytes(size),
        "int": lambda: chance.choice([-(1 << size - 1), (1 << size - 1) - 1, -1, chance.getrandbits(size - 1)]),
        "string": lambda: "".join(chance.choices("az<&;é\U0001f600", k=size)),
        "uint": lambda: chance.choice([0, (1 << size) - 1, chance.getrandbits(size)]),
    }
    return make[kind.base]()


def as_text(kind: Any, value: Any) -> str:
    """Return a value as a page shows it."""
    if kind.is_array:
        return f"[{', '.join(as_text(kind.item_type, item) for item in value)}]"
    if kind.base == "address":
        return to_checksum_address(value)
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.long
def test_values_of_each_type_are_shown_as_they_were_logged():
    chance, logs = random.Random(1), []
    expected: dict[str, str] = {}
    for number in range(45):
        event, types = "", list[str]()
        while len(event) < 80:
            types.append(made_up_type(chance))
            event = f"E{number}({','.join(types)})"
        values = [made_up_value(chance, parse(kind)) for kind in types]
        logs.append(a_log(event, data=encode(types, values)))
        texts = list(map(as_text, map(parse, types), values))
        texts = [text if len(text) <= 1024 else f"{text[:1024]}…" for text in texts]
        expected[event] = " ".join(map("{} {}".format, types, texts))
    batch = batch_about(*logs)
    for place, (event, of_log) in enumerate(expected.items()):
        text = shown(batch, event=event, slots=str(place // 50 + 1))
        assert f"event E{place} {' '.join(of_log.split())}" in text
