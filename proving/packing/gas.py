"""The gas model of proofs: a table of the gas and bytes of each part of a transaction, and the depths of tries.

A transaction pays the larger of two amounts (EIP-7623): calldata plus execution, or a higher price for calldata alone.
For mainnet's proofs the second amount is larger, for a development chain's the first.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Self

from chains.encoding import HISTORY_WINDOW, decode_rlp
from chains.nodes.questions import ProofRequest, VerifiedAccountProof
from chains.prices import GasPrices, Load
from chains.tries.header import Header
from chains.tries.packed import (
    BLOCK_BEFORE_CAPELLA,
    BLOCK_BEFORE_MERGE,
    IMPLIED_HEADER_FIELDS,
    OLD_BLOCK,
    BlockBranch,
    HeaderParts,
)
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

    def __mul__(self, times: float) -> "Amount":
        return Amount(math.ceil(self.expected * times), math.ceil(self.bound * times))


# --- The table --------------------------------------------------------------------------------------------------------

# These values were measured with generated proofs. Each is right within 2 % (`make bench-estimates`).
# In order: a header whose state root is stored, and the difference if the root is known; a block number, if the
# header is known; header fields: the first field, each word, and a zero field; the next header, which shows when a
# block ended.
_HEADER_SIZE = 650  # the size of mainnet's largest headers
_HEADER, _KNOWN_ROOT = Load(0, 13_900, 1), Load(0, 2_100, -1)
_NUMBER = Load(6, 3_800)
_FIELDS, _FIELD, _ZERO_FIELD = Load(5, 3_600), Load(0, 900, 1), Load(0, 1_500)
_TIME = Load(60, 20_800, 2)
# In order: the largest account without trie nodes, and a stored word of an account; then storage: opening it, the
# largest slot without trie nodes, a zero slot, and a word that zero slots with neighbouring numbers share.
_ACCOUNT, _WORD = Load(103, 6_500), Load(0, 300, 1)
_STORAGE, _SLOT, _ZERO_SLOT, _WORD_OF_ZEROS = Load(1), Load(37, 5_700, 1), Load(5, 4_100), Load(0, 100, 1)
# A header that is used for its root of receipts without being accumulated, and a call for receipts. Then a receipt
# without its bytes, each of its logs, its fields, and a stored log.
_USED_HEADER, _TRANSACTIONS_CALL = Load(1, 10_700), Load(7, 5_000)
_RECEIPT, _LOG, _RECEIPT_FIELDS, _STORED_LOG = Load(4, 4_150), Load(0, 2_390), Load(0, 1_700, 1), Load(2, 2_600, 1)
# A second call of the registry in a transaction that would otherwise need none of `Multicall`.
_FURTHER_CALL = Load(55, 3_000)
# Gas of rebuilding a node above receipts, and of each of its bytes.
_NODE_GAS, _NODE_BYTE_GAS = 1_900, 8.2
_HASH_PROOF = Load(5, 4_300, 1)
# An additional call in a transaction, and a block hash that is proven by a slot of the history contract.
_CALL, _HOP = Load(55, -2_000), Load(37, 6_900, 1)
# Jumps by their operation, without the header of the block to which they lead. Each contains a trusted header, which
# must be sent again for each jump, and a branch. The branch grows by a hash when the number of periods doubles.
_JUMPS = {
    OLD_BLOCK: Load(_HEADER_SIZE + 1_530, 39_500),
    BLOCK_BEFORE_CAPELLA: Load(1_080, 18_500),
    BLOCK_BEFORE_MERGE: Load(850, 12_500),
}
# A jump through the block roots in the origin's state itself.
_JUMP_BY_ROOTS = Load(_HEADER_SIZE + 1_230, 28_000)
# A block's hash, which is stored because the next block's header has it (make bench-gas).
PARENT_HASH = Load(_HEADER_SIZE + 5, 12_500, 1)
# The most that a hop takes on mainnet, and a jump without the header of the block to which it leads.
HOP, JUMP = Load(6_250, 80_000, 1), Load(1_875, 45_000)

# Trie nodes: a branch with sixteen children, any other branch, and each of its children.
_PLACES, _HASH = 16, 32
_FULL_BRANCH, _BRANCH, _CHILD = Load(1, 1_560), Load(2, 2_120), Load(1, 240)
# Numbers of children in the branches on the path to an account and to a slot, if no proof is known. These are the
# largest tries of mainnet.
_STATE, _STORAGE_TRIE = (16, 16, 16, 16, 16, 16, 9, 2), (16, 16, 16, 16, 16, 16, 9)

# A call that reads a stored slot, by its zero bytes, its other bytes and its execution. Then a call that shows a slot
# with a proof, without the proof; a proof's leaf; and the execution of each byte of a proof.
_READING, _SHOWING = (45, 55, 3_000), (155, 58, 9_400)
_LEAF_SIZE, _SHOWN_BYTE_GAS = 47, 18

# A signed gas limit is 15 % above a node's estimate, which is up to 4 % above the used gas.
_SIGNED = 1.2
# Number of slots that are requested with the sampled proof.
SAMPLED_SLOTS = 4


@dataclass(frozen=True)
class StoredOrShown:
    """The gas of a slot that is stored for all readers, and of one that each reader shows with a proof."""

    stored: int
    """The gas of storing the slot once."""
    read: int
    """The gas of a transaction that reads it."""
    shown: int
    """The gas of a transaction that shows it."""

    @classmethod
    def of(cls, trie: "Trie", stored: float, prices: GasPrices) -> Self:
        size = trie.size + _LEAF_SIZE
        zeros, others, execution = _SHOWING
        shown = prices.gas_of_call(bytes(zeros) + b"\1" * (others + size), execution + _SHOWN_BYTE_GAS * size)
        zeros, others, execution = _READING
        read = prices.gas_of_call(bytes(zeros) + b"\1" * others, execution)
        return cls(math.ceil(stored), math.ceil(read * prices.scale), math.ceil(shown * prices.scale))

    @property
    def pays_from(self) -> int:
        """Return the number of readings from which storing the slot takes less gas."""
        return self.stored // (self.shown - self.read) + 1


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

    @property
    def size(self) -> int:
        """Return the bytes of the branches on the path to one key. An absent child has a byte."""
        return sum(3 + (_HASH + 1) * count + _PLACES + 1 - count for count in self.children)

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
    def entry_facts(self) -> Sequence[EntryFact | LogFact]:
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
        return len({fact.entry for fact in self.entry_facts})

    @cached_property
    def proving_roots(self) -> frozenset[HeaderField]:
        """Return the roots below which transactions are proven."""
        return frozenset(fact.root for fact in self.entry_facts)

    @cached_property
    def new_roots(self) -> frozenset[HeaderField]:
        """Return the roots below which transactions are proven that are no facts yet."""
        return self.proving_roots.difference(self.roots)

    @property
    def logs(self) -> int:
        """Return the number of logs to store."""
        return sum(isinstance(fact, LogFact) for fact in self.entry_facts)

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
class Paths:
    """The paths by which a registry comes to trust the hashes of old blocks."""

    count: int = 0
    direct: int = 0  # number of paths to blocks that the block hash source vouches for; these wait for no other path
    hops: int = 0
    headers: int = 0  # number of headers of unrequested blocks, at which hops begin
    newest: int = 0  # number of the highest block at which hops begin
    start_gas: Amount = Amount()  # gas of the block hash source's calls
    waits: Sequence[WaitReason] = ()  # waits for the block hash source
    # Loads by block number; jumps aren't counted in `count`.
    jumps: Mapping[int, Load] = field(default_factory=dict)
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

    def charged(self, prices: GasPrices) -> Self:
        """Return the gas that the chain charges as measured, if these prices don't fit."""
        return replace(self, parts={part: amount * prices.scale for part, amount in self.parts.items()})

    @property
    def path_gas(self) -> int:
        """Return the paths' part of the upper bound, in gas."""
        return self.parts.get(CostPart.PATHS, Amount()).bound


def estimate(blocks: Sequence[UnprovenBlock], sample: Sample, paths: Paths, prices: GasPrices) -> GasEstimate:
    """Estimate the gas to prove the missing facts, including the paths."""
    blocks = [block for block in blocks if block.facts]
    # The loads of blocks and hops, as expected and for the upper bound.
    expected_loads, bound_loads = (
        [_BlockLoad(block, each, prices) for block in blocks] for each in (sample, sample.most)
    )
    largest_header = max((_header(block) for block in blocks), key=lambda load: load.size, default=Load())
    expected_hops, bound_hops = (_hops(paths, largest_header, each.state) for each in (sample, sample.most))
    hop_transactions = max(
        paths.count - paths.direct,
        math.ceil(expected_hops.size / packs.MAX_BYTES),
        math.ceil(paths.hops / packs.MAX_HOPS),
    )
    shared = _shared([block for block in expected_loads if block.transactions == 1], paths.count, prices)
    expected: defaultdict[CostPart, float] = defaultdict(float)
    bound: defaultdict[CostPart, float] = defaultdict(float)
    for expected_load, bound_load in zip(expected_loads, bound_loads, strict=True):
        for part, amount in expected_load.gas(shared.gas_of_each).items():
            expected[part] += amount
        # The bound includes one transaction more than was counted.
        for part, amount in bound_load.gas(further=1).items():
            bound[part] += amount * _SIGNED
    jumped = [number for block in blocks if block.needs_header for number in block.hashes if number in paths.jumps]
    jumps = [paths.jumps[number] for number in jumped]
    # The jump to the block after a time's block needs a separate transaction.
    separate_jumps = sum(block.times > 0 and block.hashed in jumped for block in blocks)
    jump_gas = sum(map(prices.gas_of, jumps)) + (prices.execution_of(_HOP) + prices.call) * separate_jumps
    expected[CostPart.PATHS] += jump_gas + paths.start_gas.expected
    bound[CostPart.PATHS] += jump_gas * _SIGNED + paths.start_gas.bound
    if paths.count:
        starts = prices.call * (paths.direct + hop_transactions)
        expected[CostPart.PATHS] += prices.gas_of(expected_hops) + starts
        bound[CostPart.PATHS] += (prices.gas_of(bound_hops) + starts + prices.call) * _SIGNED
    parts = {
        part: Amount(math.ceil(min(expected[part], bound[part])), math.ceil(bound[part]))
        for part in CostPart
        if bound[part]
    }
    expected_size, bound_size = (
        sum(load.size for load in (hops, *jumps, *(load for block in loads for load in block.parts.values())))
        for loads, hops in ((expected_loads, expected_hops), (bound_loads, bound_hops))
    )
    transactions = (
        shared.count
        + sum(block.transactions for block in expected_loads if block.transactions > 1)
        + sum(block.times for block in expected_loads)
        + separate_jumps
        + paths.direct
        + hop_transactions
    )
    in_a_row = max((block.times + min(2, block.transactions) for block in expected_loads), default=0)
    in_a_row += min(1, separate_jumps) + max(0, hop_transactions - 1)
    return GasEstimate(parts, Amount(math.ceil(expected_size), math.ceil(bound_size)), transactions, in_a_row)


# The part that the base gas of a transaction counts as: the first that it has.
_FIRST_PARTS = (CostPart.HEADERS, CostPart.ACCOUNTS, CostPart.TRANSACTIONS)


class _BlockLoad:
    """The load of each part of one block's facts, and the number of transactions that they need."""

    def __init__(self, missing: UnprovenBlock, sample: Sample, prices: GasPrices) -> None:
        self._prices = prices
        self.parts: dict[CostPart, Load] = {}
        self.transactions = 0
        """The transactions of proofs, without those of times."""
        self.times = missing.times
        header = _header(missing)
        entry_proofs = _entry_proofs(missing, prices)
        # A header that is only used isn't accumulated, and its root doesn't become a fact.
        self.uses_header = (
            bool(entry_proofs) and missing.is_of_transactions_alone and len(entry_proofs) == len(missing.proving_roots)
        )
        fields = missing.fields | (frozenset() if self.uses_header else missing.new_roots)
        if missing.times:
            roots = missing.times - (not missing.is_known)
            self.parts[CostPart.TIMES] = (header * 2 + _TIME) * missing.times + _KNOWN_ROOT * roots
        is_known = missing.is_known or missing.times > 0
        if self.uses_header:
            if calls := len(missing.new_roots):
                self.parts[CostPart.HEADERS] = (header + _USED_HEADER) * calls + _FURTHER_CALL * (calls - 1)
        elif fields or not is_known:
            self.parts[CostPart.HEADERS] = header + _HEADER + _KNOWN_ROOT * is_known
        if fields:
            zeros = _zero_fields(missing)
            words = len(fields) - zeros + (zeros > 0)
            self.parts[CostPart.HEADER_FIELDS] = _FIELDS + _FIELD * words + _ZERO_FIELD * zeros
        if missing.words:
            self._add_accounts(missing, sample)
        elif CostPart.HEADERS in self.parts:
            self.transactions = 1
        if entry_proofs:
            self._add_entries(missing, entry_proofs)

    def _add_accounts(self, missing: UnprovenBlock, sample: Sample) -> None:
        slots, count = missing.slots, len(missing.words)
        if slots:
            self.parts[CostPart.SLOTS] = sum((_slots(each, address, sample) for address, each in slots.items()), Load())
        accounts = sample.state.nodes(count) + _ACCOUNT * count
        self.transactions = packs.about(
            count,
            sum(map(len, slots.values())),
            self._prices,
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

    def _add_entries(self, missing: UnprovenBlock, entry_proofs: Sequence[Load]) -> None:
        # Proofs in calls of their own share a transaction with the header or the accounts if there is room.
        calls = Load() if self.uses_header else (_TRANSACTIONS_CALL + _CALL) * len(entry_proofs)
        self.parts[CostPart.TRANSACTIONS] = sum(entry_proofs, calls)
        if missing.logs:
            self.parts[CostPart.LOGS] = _STORED_LOG * missing.logs
        whole = sum(self.parts.values(), Load())
        by_size = math.ceil(whole.size / packs.MAX_BYTES)
        by_gas = self._prices.transactions_for(whole, packs.MOST_GAS_OF_PROOFS)
        self.transactions = max(self.transactions, by_size, by_gas)

    @property
    def proof(self) -> Load:
        """Return the load of the transactions with proofs, without those for times."""
        return sum((load for part, load in self.parts.items() if part != CostPart.TIMES), Load())

    def gas(self, base: float | None = None, *, further: int = 0) -> dict[CostPart, float]:
        """Return the gas of each part.

        `base` is the block's share of the base gas of a transaction that blocks may share; None: it shares none. A
        block that needs several transactions gets `further` additional ones.
        """
        call = self._prices.call
        gas = {part: self._prices.gas_of(load) for part, load in self.parts.items()}
        if self.uses_header:
            # The parts are one proof, in which the gas of one leaves room for the bytes of another.
            whole = self._prices.gas_of(sum(self.parts.values(), Load())) / sum(gas.values())
            gas = {part: amount * whole for part, amount in gas.items()}
        if self.transactions:
            alone = call * (self.transactions + further * (self.transactions > 1))
            starts = alone if base is None or self.transactions > 1 else base
            gas[next(part for part in _FIRST_PARTS if part in gas)] += starts
        if self.times:
            gas[CostPart.TIMES] += call * self.times
        return gas


def _header(missing: UnprovenBlock) -> Load:
    """Return the load of the header's bytes."""
    return Load(_HEADER_SIZE) if missing.header is None else _bytes_of(missing.header)


def _bytes_of(header: Header) -> Load:
    encoded = header.encode()
    # A zero byte costs a quarter of another byte.
    return Load(len(encoded) - encoded.count(0) * 3 / 4)


def _entry_proofs(missing: UnprovenBlock, prices: GasPrices) -> Sequence[Load]:
    """Return the loads of the proofs of receipts and transactions, without storing logs."""

    def length_of(fact: EntryFact | LogFact) -> int:
        size = missing.size_of(fact)
        return size.transaction if fact.root == HeaderField.TRANSACTIONS_ROOT else size.length

    return [_proof(missing, pack) for pack in packs.packs_of_entries(missing.entry_facts, length_of, prices)]


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


def _hops(paths: Paths, header: Load, state: Trie) -> Load:
    """Return the load of the paths' hops. `header` is the load of a typical header."""
    # The history contract has a slot for each block of its window.
    ring = Trie([_PLACES] * int(math.log(max(1, min(paths.newest, HISTORY_WINDOW)), _PLACES)) + [3])
    # The headers of requested blocks are counted with those blocks.
    return _hop(state, ring) * paths.hops + (header + _HEADER) * paths.headers


def _hop(state: Trie, ring: Trie) -> Load:
    return state.nodes(1) + ring.nodes(1) + _ACCOUNT + _CALL + _STORAGE + _HOP


def of_hop(proof: VerifiedAccountProof) -> Load:
    """Return the load of a hop by this proof of one slot, which is stored, without the header at which it begins."""
    (slot,) = proof.slots
    return _hop(Trie.of(proof.nodes), Trie.of(slot.nodes))


def of_header(header: Header) -> Load:
    """Return the load of a header whose state root is stored."""
    return _bytes_of(header) + _HEADER


def jump_load(operation: int, *, by_roots: bool = False) -> Load:
    """Return the usual load of a jump, without the header of the block to which it leads."""
    return _JUMP_BY_ROOTS if by_roots else _JUMPS[operation]


def of_jump(parts: HeaderParts, *, stores_hash: bool = False) -> Load:
    """Return the load of a jump, without the header of the block to which it leads."""
    branches = [part for part in parts if isinstance(part, BlockBranch)]
    size = sum(len(part.branch if isinstance(part, BlockBranch) else part) for part in parts)
    load = Load(size, sum(jump_load(part.operation, by_roots=part.by_roots).execution for part in branches))
    return load + _HOP if stores_hash and parts else load


@dataclass(frozen=True)
class _SharedTransactions:
    """The transactions that several blocks share."""

    count: int
    gas_of_each: float
    """The gas of each block's share of their base gas."""


def _shared(small: Sequence[_BlockLoad], on_paths: int, prices: GasPrices) -> _SharedTransactions:
    """Return the transactions that these blocks share. Proofs of `on_paths` blocks are sent in paths' transactions."""
    count, proofs = max(0, len(small) - on_paths), sum((block.proof for block in small), Load())
    # Gas limits count, and these contain the calldata.
    signed = Load(0, prices.gas_of(proofs) - proofs.words * prices.new_word, proofs.words) * _SIGNED
    needed = max(math.ceil(proofs.size / packs.SHARED_BYTES), prices.transactions_for(signed, packs.SHARED_GAS))
    transactions = min(count, needed)
    calls = prices.gas_of(_CALL) * (count - transactions)
    return _SharedTransactions(transactions, (prices.call * transactions + calls) / max(1, len(small)))
