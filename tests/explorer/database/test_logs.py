"""Logs on a batch's page, decoded by the signature of an event that a reader types."""

import gc
import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from html import unescape
from typing import Any

import pytest
from django.test import Client
from eth_abi.abi import decode, encode
from eth_abi.grammar import TupleType, parse
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from queries.models import Batch, StepKind
from tests.explorer import batches
from tests.explorer.pages import text_of
from tests.service import ALICE, BOB

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

ALICE_IN_A_TOPIC, LIST = bytes.fromhex(ALICE[2:]).rjust(32, b"\0"), "(uint8,address)[]"


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


ANOTHER, NO_EVENT = "its topic 0 differs.", "This is not an event's signature."
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
    (a_log("T(string)", data=encode(["bytes"], [b"\xff"])), "T(string s)", "s string \ufffd"),
    (a_log("T(bool,int8)", data=encode(["bool", "int8"], [True, -1])), "T(bool a, int8 b)", "a bool true b int8 -1"),
    (
        a_log(f"T({LIST})", data=encode([LIST], [[(1, ALICE)]])),
        "T(tuple(uint8 a, address b)[] c)",
        f"{LIST} [(1, {ALICE})]",
    ),
    (a_log("", ALICE_IN_A_TOPIC, data=b"\0" * 31 + b"\7"), "T(address indexed a, uint b) anonymous", "b uint256 7"),
    (a_log("", ALICE_IN_A_TOPIC), "T(address indexed a)", ANOTHER),
    (a_log("P()"), "P()", "event P"),
    (a_log("T(uint256)"), "T(uint256)", NOT_ITS_DATA),
    (a_log("T(string)", data=b"\xff" * 64), "T(string)", NOT_ITS_DATA),
    (
        a_log("T(fixed8x2,bytes2)", data=encode(["int8", "bytes2"], [-5, b"ab"])),
        "T(fixed8x2,bytes2)",
        "-0.05 bytes2 0x61",
    ),
    (a_log("T(string)", data=encode(["uint256"] * 2, [32, 1]) + b"a"), "T(string)", "T string a"),
    *(
        (a_log(f"T({kind})", data=value.to_bytes(32, signed=value < 0)), f"T({kind})", NOT_ITS_DATA)
        for kind, value in (
            *(("uint8", 256), ("int8", 128), ("int8", -129), ("address", 2**160), ("bool", 2), ("bytes31", 1)),
            *(("uint8[2]", 1), ("string[]", 2**255), ("fixed8x2", 128)),
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
            "T(()[])",
            "T(uint[0][] a)",
            "\0",
            "T(hash32)",
            "T(bytes33)",
        )
    ),
    *((PAIR, f"T({text})", NO_EVENT) for text in ("(" * 9 + "uint" + ")" * 9, "uint" + "[]" * 9, "uint" + "[1]" * 900)),
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


def lists(count: int, items: Sequence[int]) -> bytes:
    """Return the data of lists that share their items."""
    return words(*[32 * count] * count, len(items), *items)


ADDRESSES = [2**159 + number for number in range(2000)]
# Each list's pointers all lead to the next list.
POINTERS = [60, *[32 * 60] * 60]
COSTLY = [
    ("address[]," * 14 + "address[]", lists(15, ADDRESSES)),
    ("address," * 49 + "address", words(*ADDRESSES)),
    ("uint[][][][]", words(32, *POINTERS * 3, 60, *range(60))),
    ("uint[][][][][][][][]", words(*[32] * 4000)),
    ("uint[99999999][9999999999]", words(*ADDRESSES)),
    (f"uint[{'9' * 400}]", words(*ADDRESSES)),
    (f"{'(' * 8}{'int,' * 100}int{')' * 8}[]", words(32, 9, *ADDRESSES)),
    ("string[]", words(32, 2000, *[64_000] * 2000, 0)),
    ("bytes[]", words(32, 1000, *[32_000] * 1000, 60_000, *ADDRESSES)),
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
    batch = batch_about(*[a_log("", data=data)] * 50)
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

    def parsed() -> int:
        """Return the number of parsed types and of decoders that are in memory."""
        gc.collect()
        return sum(type(kept).__module__.startswith(("eth_abi", "parsimonious")) for kept in gc.get_objects())

    shown(batch, event="E(uint8[])")
    before = parsed()
    for bits in range(1, 11):
        shown(batch, event=f"E(uint{8 * bits}[],(int{8 * bits},bytes{bits})[])")
    assert parsed() <= before


def test_a_page_decodes_1000_values_of_its_logs_in_all():
    event = f"E({','.join(['int'] * 60)})anonymous"
    shown = shown_logs(*[a_log("", data=words(*range(60)))] * 17, event=event)
    assert shown.count(" int256 57 left out 2 of its values.") == 17


def test_logs_of_other_events_take_no_room_of_the_page():
    shown = shown_logs(*[PAIR] * 49, a_log("E(uint256[])", data=lists(1, [7] * 400)), event="E(uint[])")
    assert f"[{'7, ' * 341}…" in shown


# --- Values -----------------------------------------------------------------------------------------------------------


def made_up_type(chance: random.Random, depth: int = 0) -> str:
    match chance.randrange(4 + 4 * depth):
        case 0:
            return made_up_type(chance, depth + 1) + chance.choice(["[]", "[1]", "[2]", "[4]"])
        case 1:
            return f"({','.join(made_up_type(chance, depth + 1) for _ in range(chance.randrange(1, 4)))})"
    size = chance.randrange(1, 33)
    sized = (f"int{8 * size}", f"uint{8 * size}", f"bytes{size}", f"fixed{8 * size}x{size}", f"ufixed{8 * size}x80")
    return chance.choice(["address", "bool", "string", "bytes", *sized])


def made_up_value(chance: random.Random, kind: Any) -> Any:
    if kind.is_array:
        return [made_up_value(chance, kind.item_type) for _ in range(*kind.arrlist[-1] or [chance.randrange(5)])]
    if isinstance(kind, TupleType):
        return tuple(made_up_value(chance, part) for part in kind.components)
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
    """Return a value that the library decoded, as a page shows it."""
    if kind.is_array:
        return f"[{', '.join(as_text(kind.item_type, item) for item in value)}]"
    if isinstance(kind, TupleType):
        return f"({', '.join(map(as_text, kind.components, value))})"
    if kind.base == "address":
        return to_checksum_address(value)
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.long
def test_10_000_values_are_those_that_the_library_decodes():
    chance, logs, values = random.Random(1), [], 0
    expected: dict[str, list[str]] = {}
    for number in range(45):
        event, types = "", list[str]()
        while len(event) < 330:
            types.append(made_up_type(chance))
            event = f"E{number}({','.join(types)})"
        # A fixed-point number is encoded as the integer.
        as_integers = [re.sub(r"fixed(\d+)x\d+", r"int\1", kind) for kind in types]
        for _ in range(5):
            data = encode(as_integers, [made_up_value(chance, parse(kind)) for kind in as_integers])
            logs.append(a_log(event, data=data))
            texts = list(map(as_text, map(parse, types), decode(types, data)))
            texts = [text if len(text) <= 1024 else f"{text[:1024]}…" for text in texts]
            values += sum(len(re.findall("[^][(), ]+", text)) for text in texts)
            expected.setdefault(event, []).append(" ".join(map("{} {}".format, types, texts)))
    batch = batch_about(*logs)
    for place, (event, of_logs) in enumerate(expected.items()):
        text = shown(batch, event=event, slots=str(place // 10 + 1))
        for of_log in of_logs:
            assert f"event E{place} {' '.join(of_log.split())}" in text
    assert values > 10_000
