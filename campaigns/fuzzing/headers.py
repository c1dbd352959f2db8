"""Malformed but trusted headers: the registry must agree with the model and with py-rlp.

Each header is trusted as the parent of a header that the block hash source vouches for. No chain has such headers, but
the registry must read them as others do. In a quarter of the calls nothing is trusted, and nothing may be stored.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

import rlp
from eth_utils.crypto import keccak

from campaigns.fuzzing.batch import Batch, refuses, succeeds, takes
from campaigns.fuzzing.chance import Chance
from campaigns.fuzzing.ledger import Ledger
from campaigns.fuzzing.tally import Divergence, Tally, sentence
from campaigns.fuzzing.transactions import ERRORS, Bench
from chains.contract_artifacts import Artifact
from chains.encoding import hex_data, shortest
from chains.tries.header import InvalidHeader, read_beginning
from chains.tries.packed import (
    HASH_BYTES,
    HASHED_HEADER_FIELDS,
    HEADER_ALONE,
    HEADER_FACTS,
    HEADER_FIELDS,
    HEADER_PARITY,
    IMPLIED_HEADER_FIELDS,
    PARENT,
    encode_parent_hash,
)
from devnet.devchain import DevChain
from tests.contracts import tries
from tests.contracts.decoder import InvalidPacked, PackedFacts, decode
from tests.contracts.nearly import nearly
from tests.contracts.simulator import Call

_TIMESTAMP = 11
_SIZES = (32, 32, 20, 32, 32, 32, 256)
_TIMESTAMP_ERRORS = ERRORS | {keccak(text="TimestampMismatch(uint256)")[:4]}
# Share of calls with a header that nothing vouches for.
_UNTRUSTED = 0.25
# Share of headers with the maximum number of fields.
_LONG = 0.15
# Offsets of the fields of fixed size in a header and of the bytes after them, including prefixes.
_EDGES = (0, 1, 2, *(3 + place for place in (0, 33, 66, 87, 120, 153, 186, 187, 188, 445, 446, 447)))


# --- Headers ----------------------------------------------------------------------------------------------------------


def _number(chance: Chance) -> bytes:
    if chance.happens(0.06):
        return chance.pick((b"\0", b"\0\1", chance.randbytes(8), chance.randbytes(9)))
    return shortest(chance.number(8))


def _encoded(chance: Chance, content: bytes) -> bytes:
    """Return the RLP of a string, sometimes in another form or invalid."""
    if chance.happens(0.985):
        return bytes(rlp.encode(content))
    size = len(content)
    return chance.pick(
        (
            b"\x81" + content[-1:],
            b"\xb8" + bytes([size & 0xFF]) + content,
            b"\xb9" + size.to_bytes(2) + content,
            b"\xba" + size.to_bytes(3) + content,
            b"\xb7" + content,
            bytes([0x80 + min(size + 1, 55)]) + content,
            bytes(rlp.encode([content])),
            b"\0" + content,
            b"\0",
            b"\xc0",
        )
    )


def _header(
    chance: Chance,
    parent_hash: bytes = b"",
    timestamp: bytes | None = None,
    number: int | None = None,
    *,
    is_long: bool = False,
) -> bytes:
    difficulty = _number(chance) if chance.happens(0.7) else chance.randbytes(chance.pick((31, 32, 33)))
    extra_data = chance.randbytes(chance.pick((0, 1, 5, 32, 55, 56, 97, 255, 256, 3000)))
    fields = [chance.randbytes(size) for size in _SIZES]
    digits = _number(chance) if chance.happens(0.3) else shortest(chance.getrandbits(40))
    if number is not None and chance.happens(0.97):
        digits = shortest(number)
    fields += [difficulty, digits, _number(chance), _number(chance), _number(chance), extra_data]
    fields += [chance.randbytes(32), chance.randbytes(8)]
    fields += [
        chance.pick((b"", chance.randbytes(32), chance.randbytes(32 if is_long else 33), _number(chance)))
        for _ in range(HEADER_FIELDS - len(fields) if is_long else chance.below(8))
    ]
    fields[0] = parent_hash or fields[0]
    if timestamp is not None and chance.happens(0.95):
        fields[_TIMESTAMP] = timestamp
    if chance.happens(0.04):
        # The field is the parent hash or the state root.
        fields[chance.pick((0, 3))] = bytes(32)
    if chance.happens(0.06):
        size = chance.pick((0, 1, 19, 20, 21, 31, 32, 33, 255, 256, 300))
        fields[chance.below(len(fields))] = chance.randbytes(size)
    if chance.happens(0.04):
        del fields[chance.between(1, len(fields) - 1) :]
    payload = b"".join(_encoded(chance, content) for content in fields)
    size = len(payload)
    if chance.happens(0.04):
        size = max(0, size + chance.pick((1, -1, 5, -5, 256)))
    header = b"\xf9" + size.to_bytes(2) + payload
    if chance.happens(0.06):
        place = min(chance.pick(_EDGES) if chance.happens(0.6) else chance.below(len(header)), len(header) - 1)
        header = header[:place] + bytes([chance.below(256)]) + header[place + 1 :]
    return header


# --- py-rlp's reading -------------------------------------------------------------------------------------------------


class _Malformed(ValueError):
    """A header can't be read. The message is one sentence."""


def _items(header: bytes, count: int) -> list[bytes]:
    """Return the first fields. Raise _Malformed if there are too few or one is a list."""
    items: list[bytes] = []
    cursor = 3
    while len(items) < count:
        try:
            item, _, cursor = rlp.codec.consume_item(header, cursor)
        except (rlp.exceptions.DecodingError, IndexError) as error:
            raise _Malformed("This is no RLP.") from error
        # py-rlp accepts a string that extends beyond the data, and returns the part that exists.
        if cursor > len(header):
            raise _Malformed("This is cut.")
        if not isinstance(item, bytes):
            raise _Malformed("This is a list.")
        items.append(item)
    return items


class _Whole(NamedTuple):
    number: int
    timestamp: int
    parent_hash: bytes
    state_root: bytes


def _read_whole(header: bytes) -> _Whole | None:
    """Return a header's fields up to its timestamp. None if it can't be read."""
    if header[:1] != b"\xf9" or len(header) != 3 + int.from_bytes(header[1:3]):
        return None
    try:
        fields = _items(header, _TIMESTAMP + 1)
    except _Malformed:
        return None
    numbers = fields[8], fields[_TIMESTAMP]
    if (
        tuple(map(len, fields[:7])) != _SIZES
        or len(fields[7]) > HASH_BYTES
        or not any(fields[3])
        or any(len(digits) > 8 or digits[:1] == b"\0" for digits in numbers)
    ):
        return None
    return _Whole(int.from_bytes(fields[8]), int.from_bytes(fields[_TIMESTAMP]), fields[0], fields[3])


def _read_around(header: bytes, after: bytes, timestamp: int) -> _Whole | None:
    """Return the first of two headers, if they belong to the blocks before and after that time."""
    whole, next_whole = _read_whole(header), _read_whole(after)
    if (
        whole is None
        or next_whole is None
        or next_whole.parent_hash != keccak(header)
        or next_whole.number != whole.number + 1
        or not whole.timestamp <= timestamp < next_whole.timestamp
    ):
        return None
    return whole


def _why_false(facts: PackedFacts) -> str:
    """Return the difference from py-rlp's reading. Empty if there is none."""
    header = facts.headers[-1]
    try:
        fields = _items(header, max({8, *facts.header_fields}) + 1)
    except _Malformed as error:
        return str(error)
    expected = {
        place: keccak(content) if place in HASHED_HEADER_FIELDS else content.rjust(HASH_BYTES, b"\0")
        for place, content in enumerate(fields)
        if place in facts.header_fields
    }
    if expected != facts.header_fields:
        return f"fields {expected}"
    number, root = int.from_bytes(fields[8]), fields[3]
    return "" if (number, root) == (facts.block_number, facts.state_root) else f"block {number}"


# --- The campaign -----------------------------------------------------------------------------------------------------


class _Registry:
    """Calls to one registry. Each sees what earlier calls of the batch have stored."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._batch = Batch(bench.simulator)
        self._begin_batch()

    def _begin_batch(self) -> None:
        self._ledger = Ledger()
        self._vouched: dict[int, bytes] = {}
        """Hashes by number that the block hash source vouches for."""

    @property
    def is_full(self) -> bool:
        return self._batch.is_full

    def finish(self) -> None:
        """Run the remaining calls. Raise Divergence."""
        self._batch.run()
        self._begin_batch()

    def vouch(self, number: int, digest: bytes) -> None:
        """Let the block hash source vouch for the hash."""
        source = self._bench.source
        self._batch.add(
            Call(source.address, source.calldata("set", number, digest)), succeeds, lambda: f"Block {number}"
        )
        self._vouched[number] = digest

    def tell(self, child: bytes) -> None:
        """Let the registry store the hash of a header's parent. The source must vouch for the header."""
        self._ledger.logs = []
        self._ledger.store_block_hash(read_beginning(child).parent_hash)
        call = Call(self._bench.registry.address, encode_parent_hash([child]))
        self._batch.add(call, takes(self._ledger.logs), lambda: hex_data(call.data))

    def vouch_otherwise(self, chance: Chance, number: int, digest: bytes) -> None:
        """Let the source vouch for another hash of the block, for this hash of another block, or for neither.

        The other hash may be known to the registry, or differ in one bit.
        """
        how = chance.below(5)
        if how == 0:
            self.vouch(number, chance.randbytes(HASH_BYTES))
        elif how == 1:
            self.vouch(number ^ 1 << chance.below(64), digest)
        elif how == 2:
            self.vouch(number, _nearly(chance, digest))
        elif how == 3 and self._ledger.block_hashes:
            self.vouch(number, chance.pick(sorted(self._ledger.block_hashes)))

    def trust(self, chance: Chance, header: bytes) -> None:
        """Let the registry store the hash of a header."""
        number = chance.getrandbits(64)
        child = tries.header(number, chance.randbytes(HASH_BYTES), keccak(header))
        self.vouch(number, keccak(child))
        self.tell(child)

    def accumulate(self, chance: Chance, number: int) -> None:
        """Let the registry accumulate some header with that number."""
        root = self._ledger.state_roots.get(number, chance.randbytes(HASH_BYTES))
        header = tries.header(number, root)
        self.vouch(number, keccak(header))
        self._ledger.logs = []
        self._ledger.store_state_root(number, root)
        call = Call(self._bench.registry.address, header + bytes([HEADER_ALONE]))
        self._batch.add(call, takes(self._ledger.logs), lambda: hex_data(call.data))

    def prove(self, calldata: bytes, *, reads: bool) -> None:
        ledger, tally, address = self._ledger, self._bench.tally, self._bench.registry.address
        shown = self._begin(calldata)
        try:
            facts = decode(
                calldata,
                block_hash=self._vouched.get,
                state_root=ledger.state_roots.get,
                known_hashes=ledger.block_hashes,
            )
        except InvalidPacked as error:
            tally.refused[sentence(str(error))] += 1
            self._batch.add(Call(address, calldata), refuses(ERRORS), shown)
            return
        if why := _why_false(facts):
            raise Divergence(f"The model reads another header than py-rlp: {why}. {shown()}")
        tally.accepted.update(_forms(facts))
        ledger.logs = []
        ledger.store(facts)
        self._batch.add(Call(address, calldata), takes(ledger.logs), shown)
        if reads:
            far = facts.block_number + (1 << 64)
            self._batch.add_reads(address, ledger.header_reads(facts.block_number), shown)
            self._batch.add_reads(address, ledger.header_reads(far, (3, 8, *facts.header_fields)), shown)
            digests = [keccak(facts.headers[0]), *facts.known_hashes]
            queried = [*digests, *(near for digest in digests for near in list(nearly(digest))[::9])]
            far = read_beginning(facts.headers[0]).number + (1 << 64)
            self._batch.add_reads(address, [ledger.hash_read(far, digest) for digest in queried], shown)

    def prove_timestamp(self, header: bytes, after: bytes, timestamp: int) -> None:
        ledger, tally, registry = self._ledger, self._bench.tally, self._bench.registry
        call = Call(registry.address, registry.calldata("proveTimestamp", header, after, timestamp))
        shown = self._begin(call.data)
        whole = _read_around(header, after, timestamp)
        why = ""
        # If another block with that number was accumulated before, its root differs.
        if whole is None or ledger.state_roots.get(whole.number, whole.state_root) != whole.state_root:
            why = "Not the headers around a time."
        elif keccak(after) not in {*ledger.block_hashes, self._vouched.get(whole.number + 1)}:
            why = "Nobody vouches for the header after a time."
        if whole is None or why:
            tally.refused[why] += 1
            self._batch.add(call, refuses(_TIMESTAMP_ERRORS), shown)
            return
        tally.accepted["timestamp"] += 1
        ledger.logs = []
        ledger.store_state_root(whole.number, whole.state_root)
        ledger.store_timestamp(timestamp, whole.number)
        self._batch.add(call, takes(ledger.logs), shown)
        times = (timestamp, timestamp + (1 << 64))
        self._batch.add_reads(registry.address, map(ledger.timestamp_read, times), shown)

    def _begin(self, calldata: bytes) -> Callable[[], str]:
        """Count a call, and return a function that describes it."""
        self._bench.tally.done += 1
        number = self._bench.tally.done
        return lambda: f"{self._bench.name}, call {number}: 0x{calldata.hex()}"


def run(chain: DevChain, seed: int, count: int, *, artifact: Artifact | None = None) -> Tally:
    """Try `count` headers, on another FactsRegistry if given. Deterministic in `seed`. Raise Divergence."""
    chance = Chance(seed)
    bench = Bench(chain, f"headers.run, seed {seed}, count {count}", artifact)
    registry = _Registry(bench)
    while bench.tally.done < count:
        number = chance.getrandbits(64)
        if chance.happens(0.3):
            _try_timestamp(chance, registry, number)
        else:
            _try_header(chance, registry, number)
        if registry.is_full:
            registry.finish()
    registry.finish()
    return bench.tally


def _try_header(chance: Chance, registry: _Registry, number: int) -> None:
    is_long = chance.happens(_LONG)
    header = _header(chance, is_long=is_long)
    is_known = chance.happens(0.5)
    # The registry uses the length that the header states.
    end = 3 + int.from_bytes(header[1:3])
    hashed = header[:end].ljust(end, b"\0")
    own_number = number
    with suppress(InvalidHeader):
        own_number = read_beginning(hashed).number
        if not is_known and chance.happens(0.97):
            # A parent's number must be one less than its child's.
            number = (own_number + 1) % 2**64
    parent_hash = keccak(hashed)
    if not is_known and chance.happens(0.05):
        parent_hash = _nearly(chance, parent_hash)
        if chance.happens(0.5):
            # The parent is trusted, but as the parent of another child.
            registry.trust(chance, hashed)
    child = tries.header(number, keccak(hashed), parent_hash)
    if chance.happens(_UNTRUSTED):
        first = (own_number, keccak(hashed)) if is_known else (number, keccak(child))
        registry.vouch_otherwise(chance, *first)
    else:
        registry.vouch(number, keccak(child))
        if is_known:
            registry.tell(child)
    calldata = header if end >= len(header) or chance.happens(0.5) else header[:end]
    if not is_known:
        calldata = child + bytes([PARENT]) + calldata
    if chance.happens(0.7):
        calldata += bytes([HEADER_FACTS]) + _mask(chance, is_long=is_long).to_bytes(4)
    calldata += chance.pick(
        (b"\x37",) * 8 + (b"", b"\x39", b"\x39", b"\x39", b"\x37\0", b"\x36\1", b"\x39\0", b"\x39\x37")
    )
    registry.prove(calldata, reads=chance.happens(0.2))


def _mask(chance: Chance, *, is_long: bool) -> int:
    mask = chance.getrandbits(HEADER_FIELDS)
    if chance.happens(0.8):
        mask = sum(
            1 << place for place in chance.sample(range(HEADER_FIELDS if is_long else 21), chance.pick((1, 2, 4)))
        )
    if chance.happens(0.85):
        mask &= ~sum(1 << place for place in IMPLIED_HEADER_FIELDS)
    if mask.bit_count() % 2:
        mask |= HEADER_PARITY
    return mask ^ 1 << chance.below(32) if chance.happens(0.2 if is_long else 0.04) else mask


def _try_timestamp(chance: Chance, registry: _Registry, number: int) -> None:
    header, after, timestamp = _headers_around(chance)
    following = _read_whole(after)
    if chance.happens(_UNTRUSTED):
        # The two headers must have no other fault.
        while not (whole := _read_around(header, after, timestamp)):
            header, after, timestamp = _headers_around(chance)
        if chance.happens(0.3):
            # Another accumulated header with that number doesn't make this one trusted.
            registry.accumulate(chance, whole.number + 1)
        registry.vouch_otherwise(chance, whole.number + 1, keccak(after))
        if chance.happens(0.3):
            registry.vouch(whole.number, keccak(header))
    elif following and chance.happens(0.5):
        registry.vouch(following.number, keccak(after))
    else:
        registry.trust(chance, after)
    if chance.happens(0.1):
        # No header can have such a time, so no block is the latest at that time.
        timestamp += 1 << chance.pick((64, 128, 255))
    registry.prove_timestamp(header, after, timestamp)


def _nearly(chance: Chance, word: bytes) -> bytes:
    return chance.pick(list(nearly(word)))


def _headers_around(chance: Chance) -> tuple[bytes, bytes, int]:
    """Make two headers, mostly of the blocks before and after a time, and that time."""
    timestamp = chance.getrandbits(40)
    number = chance.getrandbits(40)
    time = max(0, timestamp - chance.pick((0, 0, 1, 5, -1)))
    if chance.happens(0.05):
        time += 1 << chance.pick((48, 56, 63))
    header = _header(chance, timestamp=shortest(time), number=number)
    parent_hash = keccak(header)
    if chance.happens(0.05):
        parent_hash = chance.pick((b"", _nearly(chance, parent_hash)))
    # A malformed header keeps the number that it was made with.
    if whole := _read_whole(header):
        number = whole.number
    number = (number + 1) % 2**64
    if chance.happens(0.05):
        number ^= 1 << chance.below(64)
    after = _header(chance, parent_hash, shortest(max(time, timestamp) + chance.pick((1, 1, 12, 0))), number)
    return header, after, timestamp


def _forms(facts: PackedFacts) -> Iterator[str]:
    yield "header alone" if not facts.known_hashes else "hash of the parent"
    yield from (f"field {place}" for place in facts.header_fields)
