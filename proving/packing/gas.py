"""The gas model of proofs: a table of the gas and bytes of each part of a transaction, and the depths of tries.

A transaction pays 21,000 gas plus the larger of two amounts (EIP-7623): 16 for each byte of calldata plus its
execution, or 40 for each byte. For mainnet's proofs the second amount is larger, for a development chain's the first.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Self

from chains.encoding import HISTORY_WINDOW, decode_rlp
from chains.nodes.questions import ProofRequest, VerifiedAccountProof
from chains.tries.header import Header
from chains.tries.packed import BLOCK_BEFORE_CAPELLA, BLOCK_BEFORE_MERGE, IMPLIED_HEADER_FIELDS, OLD_BLOCK
from chains.tries.packed_entries import size_of_ways
from proving.facts import (
    AccountFact,
    EntryFact,
    Fact,
    HeaderFact,
    LogFact,
    SlotFact,
    TimeFact,
    header_words,
    needs_header,
    slots_by_account,
)
from proving.packing import packs
from proving.reading.block_contents import UNKNOWN_SIZE, BlockSize, EntrySize, NamedEntry
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
    """Bytes of calldata and gas of execution of a part of a transaction. Four zero bytes count as one byte."""

    size: float = 0.0
    execution: float = 0.0

    def __add__(self, other: "Load") -> "Load":
        return Load(self.size + other.size, self.execution + other.execution)

    def __mul__(self, times: float) -> "Load":
        return Load(self.size * times, self.execution * times)

    @property
    def gas(self) -> float:
        """Return the maximum gas of this part, whatever else the transaction has."""
        return max(self.size * _LEAST_GAS_OF_A_BYTE, self.size * _GAS_OF_A_BYTE + self.execution)


# --- The table --------------------------------------------------------------------------------------------------------

_TRANSACTION = 21_000
_GAS_OF_A_BYTE, _LEAST_GAS_OF_A_BYTE = 16, 40

# These values were measured with generated proofs. Each is right within 2 % (`make bench-estimates`).
# In order: a header whose state root is stored, and the saving if the root is known; a block number, if the header is
# known; header fields: the first field, each word, and a zero field; the next header, which shows when a block ended.
_HEADER_SIZE = 650  # the size of mainnet's largest headers
_HEADER_GAS, _ROOT_GAS = 36_000, 20_000
_NUMBER = Load(6, 3_800)
_FIELDS, _FIELD, _ZERO_FIELD = Load(5, 3_600), Load(0, 23_000), Load(0, 1_500)
_TIME = Load(60, 65_000)
# In order: the largest account without trie nodes, and a stored word of an account; then storage: opening it, the
# largest slot without trie nodes, a zero slot, and a word that zero slots with neighbouring numbers share.
_ACCOUNT, _WORD = Load(103, 6_500), Load(0, 22_400)
_STORAGE, _SLOT, _ZERO_SLOT, _WORD_OF_ZEROS = Load(1), Load(37, 27_800), Load(5, 4_100), Load(0, 22_200)
# A header that is used for its root of receipts without being accumulated, and a call for receipts. Then a receipt
# without its bytes, each of its logs, its fields, and a stored log.
_USED_HEADER, _TRANSACTIONS_CALL = Load(1, 10_700), Load(7, 5_000)
_RECEIPT, _LOG, _RECEIPT_FIELDS, _STORED_LOG = Load(4, 4_150), Load(0, 2_390), Load(0, 23_800), Load(2, 24_700)
# A second call of the registry in a transaction that would otherwise need none of `Multicall`.
_FURTHER_CALL = Load(55, 3_000)
# Gas of rebuilding a node above receipts, and of each of its bytes.
_NODE_GAS, _NODE_BYTE_GAS = 1_900, 8.2
_HASH_PROOF = Load(5, 26_400)
# An additional call in a transaction, and a block hash that is proven by a slot of the history contract.
_CALL, _HOP = Load(55, -2_000), Load(37, 29_000)
# Jumps by their operation, without the header of the block to which they lead. Each contains a trusted header, which
# must be sent again for each jump, and a branch. The branch grows by a hash when the number of periods doubles.
_JUMPS = {
    OLD_BLOCK: Load(_HEADER_SIZE + 1_530, 39_500),
    BLOCK_BEFORE_CAPELLA: Load(1_080, 18_500),
    BLOCK_BEFORE_MERGE: Load(850, 12_500),
}
# Maximum gas of a hop on mainnet, and of a jump without the header of the block to which it leads.
HOP_GAS, JUMP_GAS = 250_000, 75_000

# Trie nodes: a branch with sixteen children, any other branch, and each of its children.
_PLACES, _HASH = 16, 32
_FULL_BRANCH, _BRANCH, _CHILD = Load(1, 1_560), Load(2, 2_120), Load(1, 240)
# Numbers of children in the branches on the path to an account and to a slot, if no proof is known. These are the
# largest tries of mainnet.
_STATE, _STORAGE_TRIE = (16, 16, 16, 16, 16, 16, 9, 2), (16, 16, 16, 16, 16, 16, 9)

# A signed gas limit is 15 % above a node's estimate, which is up to 4 % above the used gas.
_SIGNED = 1.2
# Number of slots that are requested with the sampled proof.
SAMPLED_SLOTS = 4


class CostPart(Enum):
    HEADERS = "headers"
    HEADER_FIELDS = "headerFields"
    ACCOUNTS = "accounts"
    SLOTS = "slots"
    TRANSACTIONS = "transactions"
    LOGS = "logs"
    TIMES = "times"
    PATHS = "paths"


# --- Depths of tries --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trie:
    """The branches on the path to one key, by their numbers of children."""

    children: Sequence[int]

    @classmethod
    def of(cls, nodes: Sequence[bytes]) -> Self:
        """Read the nodes of a verified proof."""
        decoded = [decode_rlp(node) for node in nodes]
        return cls([sum(child != b"" for child in node[:-1]) for node in decoded if len(node) == _PLACES + 1])

    @property
    def deeper(self) -> Self:
        """Return a larger trie for an upper bound: another key may have one more branch on its path, and wider ones."""
        return type(self)([*(count if count == _PLACES else min(_PLACES, count + 3) for count in self.children), 2])

    def nodes(self, keys: int) -> Load:
        """Return the load of the branches on the paths to this number of random keys.

        The paths share the top branches.
        """
        load, visited = Load(), [*self._visited(keys), keys]
        for count, here, below in zip(self.children, visited[:-1], visited[1:], strict=True):
            branch = _FULL_BRANCH if count == _PLACES else _BRANCH + _CHILD * count
            # A branch omits the hash of a child that is sent too.
            load += branch * here + Load(_HASH * max(0.0, here * count - below))
        return load

    def count(self, keys: int) -> float:
        """Return the number of nodes on the paths to this number of keys."""
        return sum(self._visited(keys)) + keys

    def _visited(self, keys: int) -> list[float]:
        """Return the average number of branches at each depth on the paths to this number of keys."""
        # Each depth has sixteen times as many branches as the depth above. Random keys meet some of them.
        below = (float(_PLACES**depth) for depth in range(1, len(self.children)))
        met = (-places * math.expm1(keys * math.log1p(-1 / places)) for places in below)
        return [float(min(keys, 1)), *met][: len(self.children)]


@dataclass(frozen=True)
class Sample:
    """The shape of a source chain's tries, from one proof. Without a proof, it is that of mainnet's largest tries."""

    state: Trie = Trie(_STATE)
    address: str = ""
    """The account whose slots were requested."""
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
            # Without a proof, the shape is already the largest.
            self.state if self.state.children is _STATE else self.state.deeper,
            self.address,
            self.storage.deeper,
        )

    def storage_of(self, address: str) -> Trie:
        return self.storage if address == self.address else self.others


def sampled(header: Header, requested: Iterable[object]) -> ProofRequest:
    """Choose the proof that shows most of the tries: that of the account with the most slots.

    At least one of the requested facts must be about an account.
    """
    address, every = max(slots_by_account(requested).items(), key=lambda item: len(item[1]))
    some = every[:: math.ceil(len(every) / SAMPLED_SLOTS) or 1]
    return ProofRequest(header.number, header.hash, header.state_root, address, some)


# --- Missing facts ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UnprovenBlock:
    """The requested facts of one block that a registry lacks."""

    number: int
    facts: Sequence[Fact | NamedEntry]
    is_known: bool  # True if the registry knows the block's state root
    header: Header | None = None
    size: BlockSize = UNKNOWN_SIZE
    """The sizes of the requested transactions, as far as they are known."""
    roots: Collection[HeaderField] = ()
    """Roots of receipts and transactions that are facts."""

    @property
    def needs_header(self) -> bool:
        """Return whether the header is needed.

        Without a state root no fact can be stored. Facts of the header itself need the header and its hash.
        """
        return bool(self.facts) and (not self.is_known or any(map(self._takes_header, self.facts)))

    def _takes_header(self, fact: Fact | NamedEntry) -> bool:
        return isinstance(fact, NamedEntry) or needs_header(fact, self.roots)

    @property
    def hashed(self) -> int:
        """Return the number of the block whose hash is needed.

        For a time, it is the next block, whose header shows the end.
        """
        return self.number + bool(self.times)

    @property
    def hashes(self) -> set[int]:
        """Return the blocks whose hashes are needed. Fields of the header need the hash of the block itself."""
        return {self.hashed, *([self.number] if self.fields or self.new_roots else [])}

    @cached_property
    def of_entries(self) -> Sequence[EntryFact | LogFact]:
        """Return the facts about transactions. Those with unknown indexes are taken for the block's first ones."""
        facts: list[EntryFact | LogFact] = []
        for place, asked in enumerate(self.facts):
            if isinstance(asked, EntryFact | LogFact):
                facts.append(asked)
            elif isinstance(asked, NamedEntry):
                index = asked.name if isinstance(asked.name, int) else place
                facts += [EntryFact(index, each) for each in asked.fields]
                facts += [LogFact(index, log) for log in range(len(asked.logs) + len(asked.block_logs))]
        return facts

    @cached_property
    def transactions(self) -> int:
        """Return the number of transactions."""
        return len({fact.entry for fact in self.of_entries})

    @cached_property
    def proving_roots(self) -> frozenset[HeaderField]:
        """Return the roots below which transactions are proven."""
        return frozenset(fact.root for fact in self.of_entries)

    @cached_property
    def new_roots(self) -> frozenset[HeaderField]:
        """Return the roots below which transactions are proven that are no facts yet."""
        return self.proving_roots.difference(self.roots)

    @property
    def logs(self) -> int:
        """Return the number of logs to store."""
        return sum(isinstance(fact, LogFact) for fact in self.of_entries)

    def size_of(self, fact: EntryFact | LogFact) -> EntrySize:
        return self.size.entries.get(fact.entry, EntrySize())

    @property
    def is_of_transactions_alone(self) -> bool:
        return all(isinstance(fact, EntryFact | LogFact | NamedEntry) for fact in self.facts)

    @cached_property
    def times(self) -> int:
        return sum(isinstance(fact, TimeFact) for fact in self.facts)

    @cached_property
    def fields(self) -> frozenset[HeaderField]:
        """Return the requested header fields, except those that accumulating the header proves anyway."""
        fields = frozenset(fact.field for fact in self.facts if isinstance(fact, HeaderFact))
        return fields.difference(HeaderField(place) for place in IMPLIED_HEADER_FIELDS)

    @cached_property
    def words(self) -> Mapping[str, int]:
        """Return the number of words for the fields of each account, by its address. 0 if only slots are requested."""
        accounts: dict[str, set[int]] = {}
        for fact in self.facts:
            if isinstance(fact, AccountFact | SlotFact):
                words = accounts.setdefault(fact.address, set())
                if isinstance(fact, AccountFact):
                    # Nonce and balance share a word.
                    words.add(max(fact.field, AccountField.BALANCE))
        return {address: len(words) for address, words in accounts.items()}

    @cached_property
    def slots(self) -> Mapping[str, Sequence[int]]:
        """Return the requested slots by the account's address."""
        slots: dict[str, list[int]] = defaultdict(list)
        for fact in self.facts:
            if isinstance(fact, SlotFact):
                slots[fact.address].append(int(fact.slot, 16))
        return slots


@dataclass(frozen=True)
class Route:
    """The paths by which a registry comes to trust the hashes of old blocks."""

    paths: int = 0
    direct: int = 0  # number of paths to blocks that the block hash source vouches for; these wait for no other path
    hops: int = 0
    headers: int = 0  # number of headers of unrequested blocks, at which hops begin
    newest: int = 0  # number of the highest block at which hops begin
    start_gas: Amount = Amount()  # gas of the block hash source's calls
    waits: Sequence[WaitReason] = ()  # waits for the block hash source
    # Operations by block number; jumps aren't counted in `paths`.
    jumps: Mapping[int, int] = field(default_factory=dict)
    jump_origin: int | None = None  # number of the block where jumps begin, if they need one


# --- Gas of missing facts ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GasEstimate:
    """The estimated gas to prove the missing facts of one source chain's blocks."""

    parts: Mapping[CostPart, Amount] = field(default_factory=dict)
    size: Amount = Amount()  # bytes of calldata
    transactions: int = 0  # expected number
    in_a_row: int = 0  # length of the longest row of transactions that each wait for the previous one

    @property
    def gas(self) -> Amount:
        return sum(self.parts.values(), Amount())

    @property
    def path_gas(self) -> int:
        """Return the paths' part of the upper bound, in gas."""
        return self.parts.get(CostPart.PATHS, Amount()).bound


def estimate(blocks: Sequence[UnprovenBlock], sample: Sample, route: Route, correction: float = 1.0) -> GasEstimate:
    """Estimate the gas to prove the missing facts, including the route. `correction` multiplies the expected gas."""
    blocks = [block for block in blocks if block.facts]
    likely, most = ([_BlockLoad(block, known) for block in blocks] for known in (sample, sample.most))
    header = max((_header(block) for block in blocks), key=lambda load: load.size, default=Load())
    hops, most_hops = (_hops(route, header, known.state) for known in (sample, sample.most))
    legs = max(
        route.paths - route.direct,
        math.ceil(hops.size / packs.MAX_BYTES),
        math.ceil(route.hops / packs.MAX_HOPS),
    )
    in_one, base = _shared([block for block in likely if block.transactions == 1], route.paths)
    gas: defaultdict[CostPart, float] = defaultdict(float)
    bound: defaultdict[CostPart, float] = defaultdict(float)
    for block_load, at_most in zip(likely, most, strict=True):
        for part, amount in block_load.gas(base).items():
            gas[part] += amount
        # The bound includes one transaction more than was counted.
        for part, amount in at_most.gas(further=1).items():
            bound[part] += amount * _SIGNED
    jumped = [number for block in blocks if block.needs_header for number in block.hashes if number in route.jumps]
    # The jump to the block after a time's block needs a separate transaction.
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


# The part that the base gas of a transaction counts as: the first that it has.
_FIRST_PARTS = (CostPart.HEADERS, CostPart.ACCOUNTS, CostPart.TRANSACTIONS)


class _BlockLoad:
    """The load of each part of one block's facts, and the number of transactions that they need."""

    def __init__(self, missing: UnprovenBlock, sample: Sample) -> None:
        self.parts: dict[CostPart, Load] = {}
        self.transactions = 0
        """The transactions of proofs, without those of times."""
        self.times = missing.times
        header = _header(missing)
        proofs = _proofs_of_entries(missing)
        count = len(proofs)
        # A header that is only used isn't accumulated, and its root doesn't become a fact.
        self.uses_header = is_used = (
            count > 0 and missing.is_of_transactions_alone and count == len(missing.proving_roots)
        )
        fields = missing.fields | (frozenset() if is_used else missing.new_roots)
        if missing.times:
            roots = missing.times - (not missing.is_known)
            self.parts[CostPart.TIMES] = (header * 2 + _TIME) * missing.times + Load(0, -_ROOT_GAS * roots)
        is_known = missing.is_known or missing.times > 0
        if is_used:
            if missing.new_roots:
                calls = len(missing.new_roots)
                self.parts[CostPart.HEADERS] = (header + _USED_HEADER) * calls + _FURTHER_CALL * (calls - 1)
        elif fields or not is_known:
            self.parts[CostPart.HEADERS] = header + Load(0, _HEADER_GAS - _ROOT_GAS * is_known)
        if fields:
            zeros = _zero_fields(missing)
            words = len(fields) - zeros + (zeros > 0)
            self.parts[CostPart.HEADER_FIELDS] = _FIELDS + _FIELD * words + _ZERO_FIELD * zeros
        if missing.words:
            self._add_accounts(missing, sample)
        elif CostPart.HEADERS in self.parts:
            self.transactions = 1
        if count:
            self._add_entries(missing, sum(proofs, Load()), count)

    def _add_accounts(self, missing: UnprovenBlock, sample: Sample) -> None:
        slots, count = missing.slots, len(missing.words)
        if slots:
            self.parts[CostPart.SLOTS] = sum((_slots(each, address, sample) for address, each in slots.items()), Load())
        accounts = sample.state.nodes(count) + _ACCOUNT * count
        self.transactions = packs.about(
            count,
            sum(map(len, slots.values())),
            nodes=sample.state.count(count)
            + sum(sample.storage_of(address).count(len(each)) for address, each in slots.items()),
            size=(accounts + self.parts.get(CostPart.SLOTS, Load())).size,
        )
        # Each additional transaction repeats all nodes on the path to its first account.
        self.parts[CostPart.ACCOUNTS] = (
            accounts
            + (sample.state.nodes(1) + _ACCOUNT) * (self.transactions - 1)
            + _WORD * sum(missing.words.values())
            + _NUMBER * (self.transactions - (CostPart.HEADERS in self.parts))
        )

    def _add_entries(self, missing: UnprovenBlock, proofs: Load, count: int) -> None:
        # Proofs in calls of their own share a transaction with the header or the accounts if there is room.
        calls = Load() if self.uses_header else (_TRANSACTIONS_CALL + _CALL) * count
        self.parts[CostPart.TRANSACTIONS] = proofs + calls
        if missing.logs:
            self.parts[CostPart.LOGS] = _STORED_LOG * missing.logs
        whole = sum(self.parts.values(), Load())
        needed = max(whole.size / packs.MAX_BYTES, whole.execution / packs.MOST_GAS_OF_PROOFS)
        self.transactions = max(self.transactions, math.ceil(needed))

    @property
    def proof(self) -> Load:
        """Return the load of the transactions with proofs, without those for times."""
        return sum((load for part, load in self.parts.items() if part != CostPart.TIMES), Load())

    def gas(self, base: float = _TRANSACTION, *, further: int = 0) -> dict[CostPart, float]:
        """Return the gas of each part.

        `base` is the block's share of the base gas of a transaction that blocks may share. A block that needs several
        transactions gets `further` additional ones.
        """
        gas = {part: load.gas for part, load in self.parts.items()}
        if self.uses_header:
            # The parts are one proof, in which the gas of one leaves room for the bytes of another.
            whole = sum(self.parts.values(), Load()).gas / sum(gas.values())
            gas = {part: amount * whole for part, amount in gas.items()}
        if self.transactions:
            starts = base if self.transactions == 1 else _TRANSACTION * (self.transactions + further)
            gas[next(part for part in _FIRST_PARTS if part in gas)] += starts
        if self.times:
            gas[CostPart.TIMES] += _TRANSACTION * self.times
        return gas


def _header(missing: UnprovenBlock) -> Load:
    """Return the load of the header's bytes."""
    encoded = b"" if missing.header is None else missing.header.encode()
    # A zero byte costs a quarter of another byte.
    return Load(len(encoded) - encoded.count(0) * 3 / 4 if encoded else _HEADER_SIZE)


def _proofs_of_entries(missing: UnprovenBlock) -> Sequence[Load]:
    """Return the loads of the proofs of receipts and transactions, without storing logs."""

    def length_of(fact: EntryFact | LogFact) -> int:
        size = missing.size_of(fact)
        return size.transaction if fact.root == HeaderField.TRANSACTIONS_ROOT else size.length

    return [_proof(missing, pack) for pack in packs.entry_packs(missing.of_entries, length_of)]


def _proof(missing: UnprovenBlock, pack: packs.EntryPack) -> Load:
    sizes = {fact.entry: missing.size_of(fact) for fact in pack.facts}
    size_of_nodes, nodes = size_of_ways(max(missing.size.count, *(index + 1 for index in sizes)), sizes)
    load = Load(size_of_nodes, _NODE_GAS * nodes + _NODE_BYTE_GAS * size_of_nodes)
    if pack.root == HeaderField.TRANSACTIONS_ROOT:
        return sum((_HASH_PROOF + Load(size.transaction) for size in sizes.values()), load)
    with_fields = {fact.entry for fact in pack.facts if isinstance(fact, EntryFact)}
    proofs = (_RECEIPT + Load(size.receipt) + _LOG * size.logs for size in sizes.values())
    return sum(proofs, load) + _RECEIPT_FIELDS * len(with_fields)


def _zero_fields(missing: UnprovenBlock) -> int:
    """Return the number of header fields that are zero. They share a word."""
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
    """Return the load of a route's hops. `header` is the load of a typical header."""
    # The history contract has a slot for each block of its window.
    ring = Trie([_PLACES] * int(math.log(max(1, min(route.newest, HISTORY_WINDOW)), _PLACES)) + [3])
    hop = state.nodes(1) + ring.nodes(1) + _ACCOUNT + _CALL + _STORAGE + _HOP
    # The headers of requested blocks are counted with those blocks.
    return hop * route.hops + (header + Load(0, _HEADER_GAS)) * route.headers


def _shared(small: Sequence[_BlockLoad], beside: int) -> tuple[int, float]:
    """Return the number of transactions that these blocks share, and the gas of each block's share of one.

    `beside` is the number of blocks whose proofs are sent in the transactions of paths.
    """
    count, proofs = max(0, len(small) - beside), sum((block.proof for block in small), Load())
    needed = max(proofs.size / packs.SHARED_BYTES, proofs.gas * _SIGNED / packs.SHARED_GAS)
    transactions = min(count, math.ceil(needed))
    calls = _CALL.gas * (count - transactions)
    return transactions, (_TRANSACTION * transactions + calls) / max(1, len(small))
