"""What proving takes in gas: of what a registry lacks at some blocks of a source chain, told by the shape of its tries.

A transaction pays 21,000, and the more of two: 16 for each byte of calldata and its execution, or 40 for each byte
(EIP-7623). Of mainnet's proofs the bytes come out dearer, of a development chain's the execution.
"""

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, cached_property
from operator import attrgetter

from chains import history
from chains.header import Header
from chains.packed import BLOCK_BEFORE_CAPELLA, BLOCK_BEFORE_MERGE, IMPLIED_HEADER_FIELDS, OLD_BLOCK
from proving import facts
from proving.facts import AccountFact, Fact, HeaderFact, SlotFact, TimeFact, header_words
from proving.gas_model import trie_shapes
from proving.gas_model.trie_shapes import LEAF_BYTES, Nodes, Shape, Storage, Tries
from proving.registry import packing
from queries.columns import AccountField, HeaderField
from queries.models import Query

_TRANSACTION = 21_000
_GAS_OF_A_BYTE, _LEAST_GAS_OF_A_BYTE = 16, 40

# What the registry executes for each, in gas: by least squares of what generated proofs took, within 2 % of each. A
# header, of which storing the state root is a part; the number of a block whose header it knows; fields of a header; an
# account or a slot, without the nodes that lead to it; and each word that is stored of an account, or of zeros.
_HEADER, _ROOT, _NUMBER, _TIME = 36_000, 20_000, 3_800, 65_000
_FIELDS, _FIELD, _ZERO_FIELD = 3_600, 23_000, 1_500
_ACCOUNT, _ABSENT_ACCOUNT, _WORD = 6_500, 3_000, 22_400
_SLOT, _ZERO_SLOT, _WORD_OF_ZEROS = 27_800, 4_100, 22_200
_FULL_BRANCH, _BRANCH, _CHILD, _OTHER_LEAF = 1_560, 2_120, 240, 3_260
# A hash that is proven by a slot; a call beside others.
_BLOCK_HASH, _CALL = 29_000, -2_000

# What each takes of packed calldata, in bytes, without hashes and numbers.
_NUMBER_BYTES, _FIELDS_BYTES, _TIME_BYTES, _CALL_BYTES = 6, 5, 60, 55
_ACCOUNT_BYTES, _ABSENT_BYTES, _STORAGE_BYTES, _SLOT_BYTES = 23, 22, 1, 5
_OTHER_LEAF_BYTES, _HASH_BYTES = 100, 32

# What is not known is taken for the largest of mainnet: its headers, the slots of its largest contracts.
_HEADER_BYTES = 650
_DEEP_STATE = trie_shapes.of_children(16, 16, 16, 16, 16, 16, 9, 2)
_DEEP_STORAGE = trie_shapes.of_children(16, 16, 16, 16, 16, 16, 9)

# The most of a transaction that blocks share: fewer suffer when one of them reverts, and a block has room for it.
SHARED_GAS, SHARED_BYTES = 6_000_000, 80_000
# Of such a transaction.
_SHARED_BLOCKS = 64
# Hops of one transaction (`proving.paths.building`).
_MOST_HOPS = 40

# Signed is 15 % more than a node estimates, which is up to 4 % more than is used.
_SIGNED = 1.2
# By which what is expected is above what most would come to.
_MARGIN = 1.05


class Part(Enum):
    HEADERS = "headers"
    HEADER_FIELDS = "headerFields"
    ACCOUNTS = "accounts"
    SLOTS = "slots"
    TIMES = "times"
    PATHS = "paths"


@dataclass(frozen=True)
class Likely:
    """An amount of gas or bytes."""

    expected: int = 0
    bound: int = 0  # it is never more

    def __add__(self, other: "Likely") -> "Likely":
        return Likely(self.expected + other.expected, self.bound + other.bound)


@dataclass(frozen=True)
class Load:
    """The gas and calldata that a part of a transaction takes."""

    size: float = 0.0  # of calldata, in bytes
    execution: float = 0.0  # in gas
    zeros: float = 0.0  # of the bytes, as far as that is known: they cost a quarter

    def __add__(self, other: "Load") -> "Load":
        return Load(self.size + other.size, self.execution + other.execution, self.zeros + other.zeros)

    def __mul__(self, times: float) -> "Load":
        return Load(self.size * times, self.execution * times, self.zeros * times)

    @property
    def is_mostly_bytes(self) -> bool:
        return self.gas(by_bytes=True) > self.gas(by_bytes=False)

    def gas(self, *, by_bytes: bool) -> float:
        size = self.size - self.zeros * 3 / 4
        return size * _LEAST_GAS_OF_A_BYTE if by_bytes else size * _GAS_OF_A_BYTE + self.execution

    @property
    def most_gas(self) -> float:
        """Return the most gas, whatever else is in the transaction."""
        return max(self.gas(by_bytes=True), self.gas(by_bytes=False))


# --- What is known of the tries ---------------------------------------------------------------------------------------


class _Known(ABC):
    """Tell what tries are taken for."""

    def __init__(self, state: Shape, leaf_size: float) -> None:
        self.state, self.leaf_size = state, leaf_size
        # Thousands of blocks are asked for as many accounts each.
        self.state_nodes = cache(state.nodes)

    @abstractmethod
    def storage(self, address: str) -> Storage: ...


class _Expected(_Known):
    """On average."""

    def __init__(self, tries: Tries) -> None:
        super().__init__(tries.state or _DEEP_STATE, tries.leaf_size)
        self._storages = tries.storages
        self._others = max(tries.storages.values(), key=lambda one: len(one.shape.levels), default=_DEEP)

    def storage(self, address: str) -> Storage:
        return self._storages.get(address, self._others)


class _Bound(_Known):
    """So that nothing comes out dearer."""

    def __init__(self, tries: Tries) -> None:
        super().__init__(tries.state.deeper if tries.state else _DEEP_STATE, float(LEAF_BYTES))
        self._storages = tries.storages

    def storage(self, address: str) -> Storage:
        known = self._storages.get(address)
        return _DEEP if known is None else Storage(known.shape.deeper)


_DEEP = Storage(_DEEP_STORAGE)


# --- What is missing --------------------------------------------------------------------------------------------------


# Jumps, by their operations, without the header of the block that they lead to (make bench-gas): a header that is
# trusted, which is sent again each time, and the branch. That has a hash more each time that the periods double.
JUMPS = {
    OLD_BLOCK: Load(_HEADER_BYTES + 1_530, 39_500),
    BLOCK_BEFORE_CAPELLA: Load(1_080, 18_500),
    BLOCK_BEFORE_MERGE: Load(850, 12_500),
}


@dataclass(frozen=True)
class Missing:
    """The requested facts of one block that a registry lacks."""

    number: int
    facts: Sequence[Fact]
    is_known: bool  # to the registry: the block's state root
    header: Header | None = None
    jump: int = 0
    """The operation by which the block whose hash is needed comes to be known, if it is a jump."""

    @cached_property
    def header_load(self) -> Load:
        """Return the load of the header's bytes alone."""
        encoded = b"" if self.header is None else self.header.encode()
        return Load(len(encoded), zeros=encoded.count(0)) if encoded else Load(_HEADER_BYTES)

    @property
    def needs_header(self) -> bool:
        """Return whether the header is needed.

        Without a state root no fact is stored; and fields of a header need the header again, and its hash.
        """
        of_header = any(isinstance(fact, HeaderFact | TimeFact) for fact in self.facts)
        return bool(self.facts) and (not self.is_known or of_header)

    @property
    def hashed(self) -> int:
        """Return the block whose hash is needed: for times the next one, whose header says when this block ended."""
        return self.number + bool(self.times)

    @property
    def hashes(self) -> set[int]:
        """Return the blocks whose hashes are needed: for fields of the header that of the block itself, too."""
        return {self.hashed, *([self.number] if self.fields else [])}

    @cached_property
    def times(self) -> int:
        return sum(isinstance(fact, TimeFact) for fact in self.facts)

    @cached_property
    def fields(self) -> frozenset[HeaderField]:
        """Return the fields of the header, without those that each header tells that is accumulated."""
        fields = frozenset(fact.field for fact in self.facts if isinstance(fact, HeaderFact))
        return fields.difference(HeaderField(place) for place in IMPLIED_HEADER_FIELDS)

    @cached_property
    def zero_fields(self) -> int:
        """Return how many of these are zero: they share a word."""
        words = {} if self.header is None else header_words(self.header)
        return sum(not any(words.get(field, b"\1")) for field in self.fields)

    @cached_property
    def words(self) -> Mapping[str, int]:
        """Return, by the account's address, how many words its fields take. None where only slots are asked for."""
        found: dict[str, set[int]] = {}
        for fact in self.facts:
            if isinstance(fact, AccountFact | SlotFact):
                words = found.setdefault(fact.address, set())
                if isinstance(fact, AccountFact):
                    # Nonce and balance share one.
                    words.add(max(fact.field, AccountField.BALANCE))
        return {address: len(words) for address, words in found.items()}

    @cached_property
    def slots(self) -> Mapping[str, Sequence[int]]:
        """Return the slots by the account's address."""
        found: dict[str, list[int]] = defaultdict(list)
        for fact in self.facts:
            if isinstance(fact, SlotFact):
                found[fact.address].append(int(fact.slot, 16))
        return found


@dataclass(frozen=True)
class Route:
    """The path by which a registry comes to trust the hashes of old blocks."""

    paths: int = 0
    direct: int = 0  # of these, that a block hash source vouches for the block itself by; they don't wait for others
    hops: int = 0
    headers: int = 0  # that hops begin with, of blocks that nobody asks for
    newest: int = 0  # number of the highest block that is hopped from
    start_gas: Likely = Likely()  # for the block hash source
    waits: Sequence[str] = ()  # what the block hash source is waited for, sentences
    jumps: Mapping[int, int] = field(default_factory=dict)  # operations, by the numbers of blocks; not among the paths
    jump_origin: int | None = None  # the number of the block where they begin, if they need one


# --- What it takes ----------------------------------------------------------------------------------------------------


class _Loads:
    """The missing facts of one block: the gas of each part, and the number of transactions."""

    def __init__(self, missing: Missing, known: _Known) -> None:
        self.missing, self._known = missing, known
        self.parts: dict[Part, Load] = {}
        self.slots: dict[str, Load] = {}
        self.transactions = 0  # beside those of times
        if missing.times:
            roots = missing.times - (not missing.is_known)
            each = missing.header_load * 2 + Load(_TIME_BYTES, _TIME)
            self.parts[Part.TIMES] = each * missing.times + Load(execution=-_ROOT * roots)
        if missing.jump and missing.needs_header:
            self.parts[Part.PATHS] = JUMPS[missing.jump] + self._more_of_times()
        is_known = missing.is_known or missing.times > 0
        if missing.facts and (missing.fields or not is_known):
            self.parts[Part.HEADERS] = missing.header_load + Load(execution=_HEADER - _ROOT * is_known)
        if missing.fields:
            zeros = missing.zero_fields
            words = len(missing.fields) - zeros + (zeros > 0)
            self.parts[Part.HEADER_FIELDS] = Load(_FIELDS_BYTES, _FIELDS + _FIELD * words + _ZERO_FIELD * zeros)
        if missing.words:
            self._add_accounts()
        elif Part.HEADERS in self.parts:
            self.transactions = 1

    def _more_of_times(self) -> Load:
        """Return what is added to a jump to the block after, which tells when the block ended."""
        if not self.missing.times:
            return Load()
        # Its hash becomes known by a transaction of its own. Fields of the block's own header take another jump.
        return Load(execution=_BLOCK_HASH) + (JUMPS[self.missing.jump] if self.missing.fields else Load())

    @property
    def jumps_apart(self) -> int:
        """Return how many transactions a jump to the block after takes, beside those of times and proofs."""
        return int(bool(self.missing.times) and Part.PATHS in self.parts)

    @property
    def first(self) -> Part:
        """Return the part that the first transaction counts as."""
        return Part.HEADERS if Part.HEADERS in self.parts else Part.ACCOUNTS

    @property
    def proof(self) -> Load:
        """Return the load of all but the times, and the jump before them."""
        return sum((load for part, load in self.parts.items() if part not in self.apart), Load())

    @property
    def apart(self) -> Collection[Part]:
        """Return the parts that have transactions of their own."""
        return {Part.TIMES, Part.PATHS} if self.missing.times else ()

    def _add_accounts(self) -> None:
        of_slots = {
            address: self._known.storage(address).shape.nodes(len(slots))
            for address, slots in self.missing.slots.items()
        }
        self.slots = {
            address: _of_nodes(of_slots[address]) + self._of_slots(address, slots)
            for address, slots in self.missing.slots.items()
        }
        if self.slots:
            self.parts[Part.SLOTS] = sum(self.slots.values(), Load())
        count, state_nodes = len(self.missing.words), self._known.state_nodes
        nodes = [state_nodes(count), *of_slots.values()]
        slots = sum(map(len, self.missing.slots.values()))
        self.transactions = packing.about(
            count, slots, nodes=sum(one.raw_count for one in nodes), size=sum(one.raw_size for one in nodes)
        )
        self.parts[Part.ACCOUNTS] = self._of_accounts(count, state_nodes(count, self.transactions))

    def _of_accounts(self, count: int, nodes: Nodes) -> Load:
        share = self._known.state.absent
        absent = share * count
        words = sum(self.missing.words.values()) * (1 - share) + absent
        # One of which more comes in the next transaction is there again.
        present = count - absent + self.transactions - 1
        return (
            _of_nodes(nodes)
            + Load(_ACCOUNT_BYTES + self._known.leaf_size, _ACCOUNT) * present
            + Load(_ABSENT_BYTES, _ABSENT_ACCOUNT) * absent
            + Load(_NUMBER_BYTES, _NUMBER) * (self.transactions - (Part.HEADERS in self.parts))
            + Load(execution=_WORD * words)
        )

    def _of_slots(self, address: str, slots: Sequence[int]) -> Load:
        storage = self._known.storage(address)
        zeros = storage.shape.absent * len(slots)
        words_of_zeros = min(zeros, len({slot >> 8 for slot in slots}))
        return (
            Load(_STORAGE_BYTES + sum(_SLOT_BYTES + (slot.bit_length() + 7) // 8 for slot in slots))
            + Load(storage.value_size, _SLOT) * (len(slots) - zeros)
            + Load(execution=_ZERO_SLOT * zeros + _WORD_OF_ZEROS * words_of_zeros)
        )


def _of_nodes(nodes: Nodes) -> Load:
    return Load(
        nodes.size + nodes.others * _OTHER_LEAF_BYTES,
        nodes.full * _FULL_BRANCH + nodes.branches * _BRANCH + nodes.children * _CHILD + nodes.others * _OTHER_LEAF,
    )


class _Way:
    """The gas of a route, and the number of its transactions. The last one also proves facts."""

    def __init__(self, route: Route, known: _Known, header: Load) -> None:
        """Count the load of a route, with headers that are like this one."""
        ring = trie_shapes.of_random_keys(max(1, min(route.newest, history.WINDOW)))
        slot = Load(_SLOT_BYTES + _HASH_BYTES, _BLOCK_HASH)
        hop = _of_nodes(known.state_nodes(1)) + Load(_ACCOUNT_BYTES + _HASH_BYTES + _CALL_BYTES, _ACCOUNT + _CALL)
        hop += Load(_STORAGE_BYTES) + _of_nodes(ring.nodes(1)) + slot
        # What is asked for counts its header itself.
        self.load = hop * route.hops + (header + Load(execution=_HEADER)) * route.headers
        self.in_a_row = max(
            route.paths - route.direct,
            math.ceil(self.load.size / packing.MAX_BYTES),
            math.ceil(route.hops / _MOST_HOPS),
        )
        self.transactions = route.direct + self.in_a_row

    @property
    def gas(self) -> float:
        return self.load.most_gas + _TRANSACTION * self.transactions


# --- In gas -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """The estimate of what is missing at the blocks of one source chain."""

    parts: Mapping[Part, Likely] = field(default_factory=dict)
    size: Likely = Likely()  # of calldata, in bytes
    transactions: int = 0  # that are expected
    in_a_row: int = 0  # of these, that wait for one another
    shares: Sequence["Shares"] = ()  # of each block at which something is missing

    @property
    def gas(self) -> Likely:
        return sum(self.parts.values(), Likely())

    @property
    def path_gas(self) -> int:
        """Return the paths' part of the bound, in gas."""
        return self.parts.get(Part.PATHS, Likely()).bound


class Shares:
    """The maximum gas of each thing that is asked for at a block, without the path to it."""

    def __init__(self, loads: _Loads) -> None:
        self.missing = loads.missing
        # One more, where they are not as many as were counted.
        transactions = loads.transactions + (loads.transactions > 1)
        most = {part: load.most_gas * _SIGNED for part, load in loads.parts.items()}
        base = _TRANSACTION * _SIGNED
        if transactions:
            most[loads.first] += base * transactions
        if Part.TIMES in most:
            most[Part.TIMES] += base * loads.missing.times
        if Part.PATHS in most:
            most[Part.PATHS] += base * loads.jumps_apart
        self.parts = {part: math.ceil(gas) for part, gas in most.items()}
        self._slots = {address: load.most_gas * _SIGNED for address, load in loads.slots.items()}
        self._accounts = len(loads.missing.words)

    def divided(self, queries: Mapping[int, Iterable[Fact]]) -> dict[int, int]:
        """Return each query's part by its id: of what it is the first to ask for. Together no more than all."""
        left = set(self.missing.facts)
        first: dict[int, set[Fact]] = {}
        for pk, asked in queries.items():
            first[pk] = left.intersection(asked)
            left -= first[pk]
        asking = sum(bool(found) for found in first.values())
        # What the header takes is everybody's.
        common = sum(self.parts.get(part, 0) for part in (Part.HEADERS, Part.HEADER_FIELDS, Part.TIMES, Part.PATHS))
        seen: set[str] = set()
        gas: dict[int, int] = {}
        for pk, found in first.items():
            addresses = {fact.address for fact in found if isinstance(fact, AccountFact | SlotFact)} - seen
            seen |= addresses
            own = len(addresses) * self.parts.get(Part.ACCOUNTS, 0) / max(1, self._accounts)
            own += sum(self._slots.get(address, 0) for address in addresses)
            gas[pk] = int(own + common / asking) if found else 0
        return gas


def estimate(blocks: Sequence[Missing], tries: Tries, route: Route) -> Estimate:
    """Estimate what it takes to prove this, and the route to it."""
    wanted = [one for one in blocks if one.facts]
    header = max((one.header_load for one in wanted), key=attrgetter("most_gas"), default=Load())
    expected, bound = _Expected(tries), _Bound(tries)
    likely, most = [_Loads(one, expected) for one in wanted], [_Loads(one, bound) for one in wanted]
    way, longest_way = _Way(route, expected, header), _Way(route, bound, header)
    shares = [Shares(one) for one in most]
    # What a path leads to is in the path's transaction; what comes after a time is ready later.
    groups = [
        _Together([one for one in likely if not one.missing.times], beside=route.paths),
        _Together([one for one in likely if one.missing.times]),
    ]
    gas = {part: sum(group.gas[part] for group in groups) for part in Part}
    at_most = {part: sum(of_block.parts.get(part, 0) for of_block in shares) for part in Part}
    if route.paths:
        gas[Part.PATHS] += way.gas
        at_most[Part.PATHS] += math.ceil((longest_way.gas + _TRANSACTION) * _SIGNED)
    gas[Part.PATHS] += route.start_gas.expected
    at_most[Part.PATHS] += route.start_gas.bound
    rows = (one.missing.times + min(2, one.transactions) + one.jumps_apart for one in likely)
    return Estimate(
        {part: Likely(math.ceil(gas[part] * _MARGIN), at_most[part]) for part in Part if at_most[part]},
        Likely(_size(likely, way), _size(most, longest_way)),
        sum(group.transactions for group in groups) + way.transactions,
        max(rows, default=0) + max(0, way.in_a_row - 1),
        shares,
    )


def _size(blocks: Sequence[_Loads], way: _Way) -> int:
    """Return the size in bytes."""
    return math.ceil(sum((load.size for one in blocks for load in one.parts.values()), way.load.size))


class _Together:
    """Blocks that are ready together: small ones share a transaction, each other one has its own."""

    def __init__(self, blocks: Sequence[_Loads], *, beside: int = 0) -> None:
        """Put small blocks together. As many of them as `beside` says are in other transactions."""
        small = [one for one in blocks if one.transactions == 1]
        proofs = sum((one.proof for one in small), Load())
        count, gas = max(0, len(small) - beside), proofs.most_gas * _SIGNED
        groups = max(count / _SHARED_BLOCKS, proofs.size / SHARED_BYTES, gas / SHARED_GAS)
        shared = min(count, math.ceil(groups))
        calls = Load(_CALL_BYTES, _CALL) * (count - shared)
        self._each = (_TRANSACTION * shared + calls.gas(by_bytes=proofs.is_mostly_bytes)) / max(1, len(small))
        self.transactions = shared + sum(one.transactions for one in blocks if one.transactions != 1)
        self.transactions += sum(one.missing.times + one.jumps_apart for one in blocks)
        self._blocks = blocks

    @property
    def gas(self) -> dict[Part, float]:
        gas: dict[Part, float] = defaultdict(float)
        for one in self._blocks:
            by_bytes = one.proof.is_mostly_bytes
            for part, load in one.parts.items():
                gas[part] += load.most_gas if part in one.apart else load.gas(by_bytes=by_bytes)
            if one.missing.times:
                gas[Part.TIMES] += _TRANSACTION * one.missing.times
                gas[Part.PATHS] += _TRANSACTION * one.jumps_apart
            if one.transactions:
                gas[one.first] += self._each if one.transactions == 1 else _TRANSACTION * one.transactions
        return gas


# --- What is still to do for a batch, as its rows tell ----------------------------------------------------------------

# Always on the high side. Admission has asked the chains (`proving.admission`), and left with each query its part of
# the batch's estimate.

# Of a hop, on mainnet.
HOP_GAS = 250_000
# Of a jump, beside the header of the block that it leads to. It is a part of what its queries were estimated to take.
JUMP_GAS = 75_000


def gas_of(query: Query) -> int:
    """Return the most gas that a query takes: its part of the batch's estimate, or what it could take by itself."""
    return of_unknown([query]).gas.bound if query.estimated_gas is None else query.estimated_gas


def of_unknown(queries: Iterable[Query]) -> Estimate:
    """Estimate queries about which no node was asked: all their facts, on the largest of chains, without paths."""
    wanted: dict[Hashable, dict[Fact, None]] = defaultdict(dict)
    for query in queries:
        where = (query.source_chain_id, query.block_id, query.timestamp, query.block_tag)
        wanted[where].update(dict.fromkeys(facts.of(query)))
    missing = [Missing(0, list(there), is_known=False) for there in wanted.values()]
    return estimate(missing, Tries(), Route())
