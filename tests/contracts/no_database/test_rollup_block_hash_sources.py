"""Rules for all sources of a rollup's blocks. Each source accepts a header for which something on the chain vouches."""

import itertools
from collections.abc import Iterator

import pytest
import rlp
from eth_utils.crypto import keccak

from devnet.devchain import DevChain
from tests.contracts import rollup_sources, tries
from tests.contracts.deployed import Deployed
from tests.contracts.rollup_sources import ROLLUP, Vouch

BLOCK = 1234
ROOT, SEND_ROOT = b"\x01" * 32, b"\x05" * 32
ZERO = bytes(32)


def header_of(number: int = BLOCK, root: bytes = ROOT) -> bytes:
    return tries.header(number, root, extra_data=SEND_ROOT)


HEADER = header_of()
HASH = keccak(HEADER)
_FIELDS = rlp.decode(HEADER)


@pytest.fixture(scope="module")
def below() -> Iterator[DevChain]:
    """Yield the chain below the rollup. Its blocks are a second apart."""
    with DevChain() as chain:
        chain.rpc("anvil_setBlockTimestampInterval", 1)
        yield chain


@pytest.fixture(params=["arbitrum", "arbitrum_slot", "op_stack_games"])
def made(request, below) -> Iterator[tuple[Deployed, Vouch]]:
    snapshot = below.rpc("evm_snapshot")
    source, vouch = getattr(rollup_sources, request.param)(below)
    numbers = itertools.count(99)

    def vouch_now(header: bytes, like: bytes = b"") -> bytes:
        data: bytes = vouch(next(numbers), header, like)
        below.mine()
        return data

    yield source, vouch_now
    assert below.rpc("evm_revert", snapshot)


@pytest.fixture
def source(made) -> Deployed:
    source: Deployed = made[0]
    return source


@pytest.fixture
def vouch(made) -> Vouch:
    vouch: Vouch = made[1]
    return vouch


def test_a_block_is_known_once_it_is_vouched_for_and_recorded(source, vouch):
    assert [source.call("blockHash", number) for number in (0, 1, BLOCK, 2**256 - 1)] == [ZERO] * 4
    assert (source.call("sourceChainId"), source.call("newest")) == (ROLLUP, 0)
    data = vouch(HEADER)
    assert source.call("blockHash", BLOCK) == ZERO
    assert int.from_bytes(source.call_raw(data)) == BLOCK
    assert source.logged(source.send_raw(data)) == [("BlockRecorded", BLOCK, HASH)]
    assert [source.call("blockHash", number) for number in (BLOCK - 1, BLOCK, BLOCK + 1)] == [ZERO, HASH, ZERO]
    assert source.call("newest") == BLOCK
    for again in (data, vouch(HEADER)):
        assert source.logged(source.send_raw(again)) == []
    assert source.call("blockHash", BLOCK) == HASH


@pytest.mark.long
def test_no_changed_byte_passes(source, vouch):
    data = vouch(HEADER)
    for offset in range(len(HEADER)):
        changed = bytearray(HEADER)
        changed[offset] ^= 1
        assert source.refusal_raw(data.replace(HEADER, changed))[0] in {"NotConfirmed", "NotClaimed", "InvalidHeader"}


def test_a_recorded_block_is_replaced_by_no_other_of_its_number(source, vouch):
    source.send_raw(vouch(HEADER))
    assert source.refusal_raw(vouch(header_of(root=b"\x66" * 32))) == ("Conflict", BLOCK)
    assert source.call("blockHash", BLOCK) == HASH


def test_the_newest_is_the_highest_that_was_recorded(source, vouch):
    for number in (BLOCK + 5, BLOCK + 3):
        header = header_of(number)
        source.send_raw(vouch(header))
        assert source.call("blockHash", number) == keccak(header)
    assert source.call("newest") == BLOCK + 5


@pytest.mark.parametrize("number", [0, 1, 2**64 - 1])
def test_the_number_is_the_header_s(source, vouch, number):
    header = header_of(number)
    source.send_raw(vouch(header))
    assert (source.call("blockHash", number), source.call("newest")) == (keccak(header), number)
    assert source.call("blockHash", BLOCK) == ZERO


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xf9", id="a byte"),
        pytest.param(HEADER + b"\0", id="a byte too many"),
        pytest.param(HEADER[:-1], id="a byte too few"),
        pytest.param(HEADER[:-50], id="without what comes after the extra data, as its length says"),
        pytest.param(tries.encode([*_FIELDS[:8], b"\0\1", *_FIELDS[9:]]), id="a number that begins with a zero"),
        pytest.param(tries.encode([*_FIELDS[:8], b"\1" * 9, *_FIELDS[9:]]), id="a number of nine bytes"),
        pytest.param(tries.encode([*_FIELDS[:3], b"\1" * 31, *_FIELDS[4:]]), id="a state root of 31 bytes"),
        pytest.param(tries.encode([*_FIELDS[:3], [b"\1"], *_FIELDS[4:]]), id="a list for the state root"),
    ],
)
def test_a_malformed_header_is_refused_even_if_it_is_vouched_for(source, vouch, header):
    assert source.refusal_raw(vouch(header, HEADER)) == ("InvalidHeader",)
