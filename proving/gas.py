"""The gas that proofs take: a table of what each thing adds to a transaction, and how deep the tries are.

A transaction pays 21,000, and the larger of two amounts: 16 for each byte of calldata and its execution, or 40 for each
byte (EIP-7623). The bytes decide for mainnet's proofs, the execution for a development chain's.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Self

from chains.encoding import HISTORY_WINDOW, decode_rlp
from chains.header import Header
from chains.packed import BLOCK_BEFORE_CAPELLA, BLOCK_BEFORE_MERGE, IMPLIED_HEADER_FIELDS, OLD_BLOCK
from chains.questions import ProofRequest, VerifiedAccountProof
from proving import packing
from proving.facts import AccountFact, Fact, HeaderFact, SlotFact, TimeFact, header_words
from queries.columns import AccountField, HeaderField
from queries.waits import WaitReason


@dataclass(frozen=True)
class Amount:
    """An expected amount of gas, wei or bytes, and its upper bound."""

    expected: int = 0
    bound: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.expected + other.expected, self.bound + other.bound)


@dataclass(frozen=True)
class Load:
    """The bytes of calldata and the gas of execution of a part of a transaction. Four zero bytes count as one."""

    size: float = 0.0
    execution: float = 0.0

    def __add__(self, other: "Load") -> "Load":
        return Load(self.size + other.size, self.execution + other.execution)

    def __mul__(self, times: float) -> "Load":
        return Load(self.size * times, self.execution * times)

    @property
    def gas(self) -> float:
        """Return the most gas, whatever else is in the transaction."""
        return max(self.size * _LEAST_GAS_OF_A_BYTE, self.size * _GAS_OF_A_BYTE + self.execution)


# --- The table --------------------------------------------------------------------------------------------------------

_TRANSACTION = 21_000
_GAS_OF_A_BYTE, _LEAST_GAS_OF_A_BYTE = 16, 40

# These were measured with generated proofs, and are right within 2 % for each (`make bench-estimates`). A header whose
# state root is stored, and what it takes less where the root is known; its number, where the header is known; fields of
# a header, the first of them and each word; and the next header, which tells when a block ended.
_HEADER_SIZE = 650  # the largest of mainnet
_HEADER_GAS, _ROOT_GAS = 36_000, 20_000
_NUMBER = Load(6, 3_800)
_FIELDS, _FIELD, _ZERO_FIELD = Load(5, 3_600), Load(0, 23_000), Load(0, 1_500)
_TIME = Load(60, 65_000)
# The largest account or slot without the nodes that lead to it, and a stored word of an account. Slots that are zero
# share a word with their neighbours.
_ACCOUNT, _WORD = Load(103, 6_500), Load(0, 22_400)
_STORAGE, _SLOT, _ZERO_SLOT, _WORD_OF_ZEROS = Load(1), Load(37, 27_800), Load(5, 4_100), Load(0, 22_200)
# A call beside others, and a block hash that a slot of the history contract proves.
_CALL, _HOP = Load(55, -2_000), Load(37, 29_000)
# Jumps by their operations, without the header of the block that they lead to. Each has a trusted header, which is sent
# again each time, and a branch, which grows by a hash when the number of periods doubles.
_JUMPS = {
    OLD_BLOCK: Load(_HEADER_SIZE + 1_530, 39_500),
    BLOCK_BEFORE_CAPELLA: Load(1_080, 18_500),
    BLOCK_BEFORE_MERGE: Load(850, 12_500),
}
# The largest gas of a hop on mainnet, and of a jump without the header of the block that it leads to.
HOP_GAS, JUMP_GAS = 250_000, 75_000

# Nodes of tries: branches with sixteen children, and others by their children.
_PLACES, _HASH = 16, 32
_FULL_BRANCH, _BRANCH, _CHILD = Load(1, 1_560), Load(2, 2_120), Load(1, 240)
# The branches on the way to an account, and to a slot, by their children, where no proof is known: the largest tries of
# mainnet.
_STATE, _STORAGE_TRIE = (16, 16, 16, 16, 16, 16, 9, 2), (16, 16, 16, 16, 16, 16, 9)

# A signed gas limit is 15 % above a node's estimate, which is up to 4 % above the used gas.
_SIGNED = 1.2
# The number of slots that are asked for with the sampled proof.
SAMPLED_SLOTS = 4


class CostPart(Enum):
    HEADERS = "headers"
    HEADER_FIELDS = "headerFields"
    ACCOUNTS = "accounts"
    SLOTS = "slots"
    TIMES = "times"
    PATHS = "paths"


# --- How deep tries are -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trie:
    """The branches on the way to one key, by the numbers of their children."""

    children: Sequence[int]

    @classmethod
    def of(cls, nodes: Sequence[bytes]) -> Self:
        """Read the nodes of a proof, which was verified."""
        decoded = [decode_rlp(node) for node in nodes]
        return cls([sum(child != b"" for child in node[:-1]) for node in decoded if len(node) == _PLACES + 1])

    @property
    def deeper(self) -> Self:
        """Return a trie on the high side: another key may have a branch more on its way, and wider ones."""
        return type(self)([*(count if count == _PLACES else min(_PLACES, count + 3) for count in self.children), 2])

    def nodes(self, keys: int) -> Load:
        """Return the load of the branches that lead to this number of random keys, which share the top ones."""
        load, visited = Load(), [*self._visited(keys), keys]
        for count, here, below in zip(self.children, visited[:-1], visited[1:], strict=True):
            branch = _FULL_BRANCH if count == _PLACES else _BRANCH + _CHILD * count
            # Branches carry no hash of a child that is sent too.
            load += branch * here + Load(_HASH * max(0.0, here * count - below))
        return load

    def count(self, keys: int) -> float:
        """Return how many nodes lead to this number of keys."""
        return sum(self._visited(keys)) + keys

    def _visited(self, keys: int) -> list[float]:
        """Return how many branches of each depth lead to this number of keys, on average."""
        # Each depth has sixteen times the places of the one above, and random keys meet a part of them.
        below = (float(_PLACES**depth) for depth in range(1, len(self.children)))
        met = (-places * math.expm1(keys * math.log1p(-1 / places)) for places in below)
        return [float(min(keys, 1)), *met][: len(self.children)]


@dataclass(frozen=True)
class Sample:
    """The shape of a source chain's tries, by one proof. Without a proof it is that of the largest of mainnet."""

    state: Trie = Trie(_STATE)
    address: str = ""
    """The account whose slots were asked for."""
    storage: Trie = Trie(_STORAGE_TRIE)
    zeros: float = 0.0
    """The share of these slots that are zero."""
    others: Trie = Trie(_STORAGE_TRIE)
    """The storage of other accounts."""

    @classmethod
    def of(cls, proof: VerifiedAccountProof) -> Self:
        state = Trie.of(proof.nodes)
        if not proof.slots:
            return cls(state)
        storage = max((Trie.of(slot.nodes) for slot in proof.slots), key=lambda trie: len(trie.children))
        zeros = sum(slot.value == 0 for slot in proof.slots) / len(proof.slots)
        return cls(state, proof.address, storage, zeros, storage)

    @property
    def most(self) -> Self:
        """Return a sample for the upper bound."""
        return type(self)(
            # The shape is the largest already where no proof was read.
            self.state if self.state.children is _STATE else self.state.deeper,
            self.address,
            self.storage.deeper,
        )

    def storage_of(self, address: str) -> Trie:
        return self.storage if address == self.address else self.others


def sampled(header: Header, requested: Iterable[Fact]) -> ProofRequest:
    """Choose the proof that tells most about the tries: that of the account with the most slots.

    At least one of the requested facts must be about an account.
    """
    slots: dict[str, list[int]] = {}
    for fact in requested:
        if isinstance(fact, AccountFact | SlotFact):
            of_account = slots.setdefault(fact.address, [])
            of_account += [int(fact.slot, 16)] if isinstance(fact, SlotFact) else []
    address, every = max(slots.items(), key=lambda item: len(item[1]))
    some = every[:: math.ceil(len(every) / SAMPLED_SLOTS) or 1]
    return ProofRequest(header.number, header.hash, header.state_root, address, some)


# --- Missing facts ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Missing:
    """The requested facts of one block that a registry lacks."""

    number: int
    facts: Sequence[Fact]
    is_known: bool  # the registry knows the block's state root
    header: Header | None = None

    @property
    def needs_header(self) -> bool:
        """Return whether the header is needed.

        Without a state root no fact is stored; and fields of a header need the header again, and its hash.
        """
        of_header = any(isinstance(fact, HeaderFact | TimeFact) for fact in self.facts)
        return bool(self.facts) and (not self.is_known or of_header)

    @property
    def hashed(self) -> int:
        """Return the number of the block whose hash is needed. A time needs the next one: its header ends this one."""
        return self.number + bool(self.times)

    @property
    def hashes(self) -> set[int]:
        """Return the blocks whose hashes are needed. Fields of the header need the hash of the block itself."""
        return {self.hashed, *([self.number] if self.fields else [])}

    @cached_property
    def times(self) -> int:
        return sum(isinstance(fact, TimeFact) for fact in self.facts)

    @cached_property
    def fields(self) -> frozenset[HeaderField]:
        """Return the requested header fields, except those that accumulating any header proves."""
        fields = frozenset(fact.field for fact in self.facts if isinstance(fact, HeaderFact))
        return fields.difference(HeaderField(place) for place in IMPLIED_HEADER_FIELDS)

    @cached_property
    def words(self) -> Mapping[str, int]:
        """Return how many words the fields of each account take, by its address: 0 where only slots are requested."""
        accounts: dict[str, set[int]] = {}
        for fact in self.facts:
            if isinstance(fact, AccountFact | SlotFact):
                words = accounts.setdefault(fact.address, set())
                if isinstance(fact, AccountFact):
                    # Nonce and balance share one.
                    words.add(max(fact.field, AccountField.BALANCE))
        return {address: len(words) for address, words in accounts.items()}

    @cached_property
    def slots(self) -> Mapping[str, Sequence[int]]:
        """Return the slots by the account's address."""
        slots: dict[str, list[int]] = defaultdict(list)
        for fact in self.facts:
            if isinstance(fact, SlotFact):
                slots[fact.address].append(int(fact.slot, 16))
        return slots


@dataclass(frozen=True)
class Route:
    """The path by which a registry comes to trust the hashes of old blocks."""

    paths: int = 0
    direct: int = 0  # of these, to blocks that the block hash source itself vouches for; they wait for no other path
    hops: int = 0
    headers: int = 0  # at which hops begin, of blocks that nobody asks for
    newest: int = 0  # number of the highest block that hops begin at
    start_gas: Amount = Amount()  # for the block hash source
    waits: Sequence[WaitReason] = ()  # for the block hash source
    jumps: Mapping[int, int] = field(default_factory=dict)  # operations by block number; not counted in `paths`
    jump_origin: int | None = None  # the number of the block where jumps begin, if they need one


# --- Gas of missing facts ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GasEstimate:
    """The estimated gas to prove what is missing at the blocks of one source chain."""

    parts: Mapping[CostPart, Amount] = field(default_factory=dict)
    size: Amount = Amount()  # of calldata, in bytes
    transactions: int = 0  # expected number
    in_a_row: int = 0  # of these, in the longest row where each waits for the one before

    @property
    def gas(self) -> Amount:
        return sum(self.parts.values(), Amount())

    @property
    def path_gas(self) -> int:
        """Return the paths' part of the bound, in gas."""
        return self.parts.get(CostPart.PATHS, Amount()).bound


def estimate(blocks: Sequence[Missing], sample: Sample, route: Route, correction: float = 1.0) -> GasEstimate:
    """Estimate the gas to prove the missing facts and the route to them. `correction` multiplies the expected gas."""
    blocks = [block for block in blocks if block.facts]
    likely, most = ([_BlockLoad(block, known) for block in blocks] for known in (sample, sample.most))
    header = max((_header(block) for block in blocks), key=lambda load: load.size, default=Load())
    hops, most_hops = (_hops(route, header, known.state) for known in (sample, sample.most))
    legs = max(
        route.paths - route.direct,
        math.ceil(hops.size / packing.MAX_BYTES),
        math.ceil(route.hops / packing.MAX_HOPS),
    )
    in_one, base = _shared([block for block in likely if block.transactions == 1], route.paths)
    gas: defaultdict[CostPart, float] = defaultdict(float)
    bound: defaultdict[CostPart, float] = defaultdict(float)
    for block_load, at_most in zip(likely, most, strict=True):
        for part, amount in block_load.gas(base).items():
            gas[part] += amount
        # The bound has room for one transaction more than was counted.
        for part, amount in at_most.gas(further=1).items():
            bound[part] += amount * _SIGNED
    jumped = [number for block in blocks if block.needs_header for number in block.hashes if number in route.jumps]
    # The jump to the block that follows a time's block takes a transaction of its own.
    apart = sum(block.times > 0 and block.hashed in jumped for block in blocks)
    jumps = [_JUMPS[route.jumps[number]] for number in jumped]
    of_jumps = sum(load.gas for load in jumps) + (_HOP.execution + _TRANSACTION) * apart
    gas[CostPart.PATHS] += of_jumps
    bound[CostPart.PATHS] += of_jumps * _SIGNED
    if route.paths:
        starts = _TRANSACTION * (route.direct + legs)
        gas[CostPart.PATHS] += hops.gas + starts
        bound[CostPart.PATHS] += (most_hops.gas + starts + _TRANSACTION) * _SIGNED
    gas[CostPart.PATHS] += route.start_gas.expected
    bound[CostPart.PATHS] += route.start_gas.bound
    parts = {
        part: Amount(math.ceil(min(gas[part] * correction, at_most)), math.ceil(at_most))
        for part, at_most in bound.items()
    }
    sizes = (
        math.ceil(sum(load.size for load in (way, *jumps, *(load for each in loads for load in each.parts.values()))))
        for loads, way in ((likely, hops), (most, most_hops))
    )
    rows = (block.times + min(2, block.transactions) for block in likely)
    return GasEstimate(
        {part: parts[part] for part in CostPart if parts.get(part, Amount()).bound},
        Amount(*sizes),
        in_one
        + sum(block.transactions for block in likely if block.transactions > 1)
        + sum(block.times for block in likely)
        + apart
        + route.direct
        + legs,
        max(rows, default=0) + min(1, apart) + max(0, legs - 1),
    )


class _BlockLoad:
    """The load of each part of one block's facts, and the number of transactions that they take."""

    def __init__(self, missing: Missing, sample: Sample) -> None:
        self.parts: dict[CostPart, Load] = {}
        self.transactions = 0
        """The transactions of proofs, without those of times."""
        self.times = missing.times
        header = _header(missing)
        if missing.times:
            roots = missing.times - (not missing.is_known)
            self.parts[CostPart.TIMES] = (header * 2 + _TIME) * missing.times + Load(0, -_ROOT_GAS * roots)
        is_known = missing.is_known or missing.times > 0
        if missing.fields or not is_known:
            self.parts[CostPart.HEADERS] = header + Load(0, _HEADER_GAS - _ROOT_GAS * is_known)
        if missing.fields:
            zeros = _zero_fields(missing)
            words = len(missing.fields) - zeros + (zeros > 0)
            self.parts[CostPart.HEADER_FIELDS] = _FIELDS + _FIELD * words + _ZERO_FIELD * zeros
        if missing.words:
            self._add_accounts(missing, sample)
        elif CostPart.HEADERS in self.parts:
            self.transactions = 1

    def _add_accounts(self, missing: Missing, sample: Sample) -> None:
        slots, count = missing.slots, len(missing.words)
        if slots:
            self.parts[CostPart.SLOTS] = sum((_slots(each, address, sample) for address, each in slots.items()), Load())
        accounts = sample.state.nodes(count) + _ACCOUNT * count
        self.transactions = packing.about(
            count,
            sum(map(len, slots.values())),
            nodes=sample.state.count(count)
            + sum(sample.storage_of(address).count(len(each)) for address, each in slots.items()),
            size=(accounts + self.parts.get(CostPart.SLOTS, Load())).size,
        )
        # Each further transaction carries all nodes on the way to its first account.
        self.parts[CostPart.ACCOUNTS] = (
            accounts
            + (sample.state.nodes(1) + _ACCOUNT) * (self.transactions - 1)
            + _WORD * sum(missing.words.values())
            + _NUMBER * (self.transactions - (CostPart.HEADERS in self.parts))
        )

    @property
    def proof(self) -> Load:
        """Return the load of the transactions of proofs, without those of times."""
        return sum((load for part, load in self.parts.items() if part != CostPart.TIMES), Load())

    def gas(self, base: float = _TRANSACTION, *, further: int = 0) -> dict[CostPart, float]:
        """Return the gas of each part.

        `base` is the block's part of a transaction that it may share. A block that takes several transactions gets this
        number of `further` ones.
        """
        gas = {part: load.gas for part, load in self.parts.items()}
        if self.transactions:
            starts = base if self.transactions == 1 else _TRANSACTION * (self.transactions + further)
            gas[CostPart.HEADERS if CostPart.HEADERS in gas else CostPart.ACCOUNTS] += starts
        if self.times:
            gas[CostPart.TIMES] += _TRANSACTION * self.times
        return gas


def _header(missing: Missing) -> Load:
    """Return the load of the header's bytes alone."""
    encoded = b"" if missing.header is None else missing.header.encode()
    # A zero costs a quarter of another byte.
    return Load(len(encoded) - encoded.count(0) * 3 / 4 if encoded else _HEADER_SIZE)


def _zero_fields(missing: Missing) -> int:
    """Return how many of the fields are zero: they share a word."""
    words = {} if missing.header is None else header_words(missing.header)
    return sum(not any(words.get(field, b"\1")) for field in missing.fields)


def _slots(slots: Sequence[int], address: str, sample: Sample) -> Load:
    zeros = sample.zeros * len(slots)
    words_of_zeros = min(zeros, len({slot >> 8 for slot in slots}))
    return (
        sample.storage_of(address).nodes(len(slots))
        + _STORAGE
        + Load(sum((slot.bit_length() + 7) // 8 for slot in slots))
        + _SLOT * (len(slots) - zeros)
        + _ZERO_SLOT * zeros
        + _WORD_OF_ZEROS * words_of_zeros
    )


def _hops(route: Route, header: Load, state: Trie) -> Load:
    """Return the load of a route's hops, with headers that are like this one."""
    # The history contract has a slot for each block of its window.
    ring = Trie([_PLACES] * int(math.log(max(1, min(route.newest, HISTORY_WINDOW)), _PLACES)) + [3])
    hop = state.nodes(1) + ring.nodes(1) + _ACCOUNT + _CALL + _STORAGE + _HOP
    # The headers of requested blocks are counted with those blocks.
    return hop * route.hops + (header + Load(0, _HEADER_GAS)) * route.headers


def _shared(small: Sequence[_BlockLoad], beside: int) -> tuple[int, float]:
    """Return how many transactions these blocks share, and the gas of each block's part of one.

    `beside` is the number of blocks whose proofs travel in transactions of paths.
    """
    count, proofs = max(0, len(small) - beside), sum((block.proof for block in small), Load())
    needed = max(proofs.size / packing.SHARED_BYTES, proofs.gas * _SIGNED / packing.SHARED_GAS)
    transactions = min(count, math.ceil(needed))
    calls = _CALL.gas * (count - transactions)
    return transactions, (_TRANSACTION * transactions + calls) / max(1, len(small))
