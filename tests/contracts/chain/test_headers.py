"""Fields of headers as the package's `Headers` reads them. The client's `block_header` is the model."""

import pytest
import rlp
from eth_utils.crypto import keccak

from batch_query_client.block_header import decode
from batch_query_client.errors import InvalidBundle
from batch_query_client.questions import HEADER_PROPERTIES
from tests import headers
from tests.contracts import tries
from tests.contracts.deployed import Deployed
from tests.contracts.simulator import Call
from tests.contracts.walks import REFUSAL

LAYOUTS = headers.ETHEREUM | headers.OTHERS
PLACES = range(24)


@pytest.fixture(scope="module")
def user(chain) -> Deployed:
    return Deployed(chain, "test/PackageUser")


@pytest.fixture(scope="module")
def read(simulator, user):
    """Return a function that returns the word of each place of a header, None where it is refused."""

    def words(header: bytes) -> list[bytes | None]:
        outcomes = simulator.run(
            [Call(user.address, user.calldata("headerField", header, place)) for place in [*PLACES, 2**256 - 1]]
        )
        assert {outcome.data for outcome in outcomes if not outcome.succeeded} <= {REFUSAL}
        assert not outcomes[-1].succeeded
        return [outcome.data if outcome.succeeded else None for outcome in outcomes[:-1]]

    return words


def expected(header: bytes) -> list[bytes | None]:
    try:
        words = decode(header).words
    except InvalidBundle:
        return [None] * len(PLACES)
    return [words.get(name) for name in HEADER_PROPERTIES] + [None] * (len(PLACES) - len(HEADER_PROPERTIES))


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_fields_of_each_layout_are_as_the_client_reads_them(user, read, name):
    header = headers.encode(LAYOUTS[name])
    assert read(header) == expected(header)
    assert user.call("headerHash", header) == keccak(header)
    assert user.call("headerStateRoot", header) == b"\x03" * 32
    assert user.call("headerNumber", header) == 12


@pytest.mark.parametrize("extra", [b"", b"\0\1", b"\1" * 31, b"\1" * 128, bytes(300)])
def test_extra_data_of_any_size_and_a_bloom_are_hashed(read, extra):
    header = headers.encode(headers.PRAGUE, extraData=extra, logsBloom=bytes(range(256)))
    assert read(header) == expected(header)
    assert (read(header)[6], read(header)[12]) == (keccak(bytes(range(256))), keccak(extra))


@pytest.mark.parametrize("number", [0, 1, 127, 128, 2**64 - 1])
def test_numbers_of_all_sizes_are_read(user, number):
    assert user.call("headerNumber", headers.encode(headers.PRAGUE, number=number)) == number


@pytest.mark.parametrize(
    ("field", "size"),
    [
        ("difficulty", 32),
        ("baseFeePerGas", 16),
        *(
            (name, 8)
            for name in (
                *("number", "gasLimit", "gasUsed", "timestamp"),
                *("blobGasUsed", "excessBlobGas", "slotNumber"),
            )
        ),
    ],
)
def test_a_number_may_have_all_bytes_of_its_field(read, field, size):
    header = headers.encode(headers.AMSTERDAM, **{field: 2 ** (8 * size) - 1})
    assert read(header) == expected(header)
    assert None not in read(header)[:23]


def test_a_state_root_of_zero_is_none(user):
    header = headers.encode(headers.PRAGUE, stateRoot=bytes(32))
    assert user.refusal("headerStateRoot", header) == ("InvalidProof",)


@pytest.mark.parametrize(
    ("field", "content"),
    [
        *(
            (name, b"\x01" * 31)
            for name in ("parentHash", "stateRoot", "mixHash", "requestsHash", "blockAccessListHash")
        ),
        *((name, b"\0\1") for name in ("difficulty", "number", "timestamp", "baseFeePerGas", "slotNumber")),
        *((name, b"\0") for name in ("number", "gasLimit", "blobGasUsed")),
        *((name, b"\1" * 9) for name in ("number", "gasUsed", "timestamp", "excessBlobGas")),
        *(("miner", b"\1" * size) for size in (19, 21)),
        *(("logsBloom", bytes(size)) for size in (0, 255, 257)),
        *(("nonce", bytes(size)) for size in (7, 9)),
        ("difficulty", b"\1" * 33),
        ("baseFeePerGas", b"\1" * 17),
        ("parentBeaconBlockRoot", b""),
    ],
)
def test_a_field_of_another_size_is_refused(read, field, content):
    header = headers.encode(headers.AMSTERDAM, **{field: content})
    assert read(header) == expected(header)
    shown = [word for place, word in enumerate(read(header)) if place >= 13]
    assert set(shown) == {None}


# Where the prefixes of the first seven fields are in a header whose list has two bytes of size.
PREFIXES = {
    **dict.fromkeys((3, 36), b"\x9f\xa1\xe0"),
    69: b"\x93\x95\xd4",
    **dict.fromkeys((90, 123, 156), b"\x9f\xa1\xe0"),
    189: b"\xb8\xba\xf9",
    190: b"\0\2",
    191: b"\1\xff",
}


@pytest.mark.parametrize(
    ("place", "prefix"), [(place, prefix) for place, other in PREFIXES.items() for prefix in other]
)
def test_a_prefix_that_alone_is_another_is_refused(read, place, prefix):
    header = headers.encode(headers.PRAGUE)
    spoilt = header[:place] + bytes([prefix]) + header[place + 1 :]
    assert read(spoilt) == expected(spoilt) == [None] * len(PLACES)


@pytest.mark.parametrize(
    ("place", "item"), [(7, []), (8, [b"\1"]), (12, []), (13, [b"\1"] * 32), (14, [b"\1"] * 8), (22, [])]
)
def test_a_field_that_is_a_list_of_its_size_is_refused(read, place, item):
    items = rlp.decode(headers.encode(headers.AMSTERDAM))
    header = tries.encode([*items[:place], item, *items[place + 1 :]])
    assert read(header) == expected(header)
    assert set(read(header)[0 if place < 13 else 13 :]) == {None}


def test_a_last_number_may_be_zero_but_no_field_is_empty_that_no_fork_has(read):
    header = headers.encode(headers.AMSTERDAM, slotNumber=0)
    assert read(header) == expected(header)
    assert read(header)[22] == bytes(32)
    assert set(read(tries.encode([*rlp.decode(header), b""]))[13:]) == {None}


def test_what_is_no_header_is_refused(read):
    header = headers.encode(headers.PRAGUE)
    items = rlp.decode(header)
    content = header[3:]
    others = [
        b"",
        b"\xc0",
        items[0],
        header + b"\0",
        header[:-1],
        header[:3] + content[:-1],
        # One size in four bytes, and a list in a string.
        b"\xfa" + len(content).to_bytes(3) + content,
        tries.encode(header),
        tries.encode([*items[:3], [items[3]], *items[4:]]),
        tries.encode(items[:12]),
        # A hash with a size of its own, and an integer of one byte with a prefix.
        tries.listed(b"\xb8\x20" + items[0] + content[33:]),
        tries.listed(content[:-33] + b"\xb8\x20" + items[20]),
    ]
    # The last one is canonical up to the field that it spoils, which isn't among those that all chains share.
    assert [set(read(each)) for each in others[:-1]] == [{None}] * (len(others) - 1)
    assert set(read(others[-1])[13:]) == {None}


def test_headers_of_other_lengths_have_the_shared_fields_alone(read):
    items = rlp.decode(headers.encode(headers.AMSTERDAM))
    for count, shared in [(13, 13), (14, 13), (15, 15), (23, 23), (24, 13), (40, 13)]:
        shown = read(tries.encode([*items, *[bytes(32)] * 20][:count]))
        assert [place for place, word in enumerate(shown) if word is not None] == list(range(shared))


def test_a_header_is_required_by_its_hash_and_number(user, source, registry):
    header = headers.encode(headers.PRAGUE)
    number = user.call("headerNumber", header)
    unknown = ("UnknownBlockHash", number, keccak(header))
    assert user.refusal("requireHeader", registry.address, header) == unknown
    # The source's hash for another number says nothing.
    source.send("set", number + 1, keccak(header))
    assert user.refusal("requireHeader", registry.address, header) == unknown
    source.send("set", number, keccak(header))
    assert user.call("requireHeader", registry.address, header) == number
    [error] = user.refusal("requireHeader", registry.address, header[:-1])
    assert error == "InvalidProof"


def test_a_header_whose_hash_is_proven_has_its_own_number(user, source, registry):
    parent = headers.encode(headers.PRAGUE, number=40)
    child = headers.encode(headers.PRAGUE, number=41, parentHash=keccak(parent))
    source.send("set", 41, keccak(child))
    registry.send_raw(child + b"\x39")
    assert user.call("requireHeader", registry.address, parent) == 40
