"""The packing of one block's missing facts into as few transactions as the limits allow."""

import math
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from eth_utils.crypto import keccak

from chains.encoding import hex_data
from chains.prices import NO_LOAD, GasPrices, Load
from chains.tries import packed
from chains.tries.header import Header
from chains.tries.packed import (
    CODE_HASH,
    IMPLIED_HEADER_FIELDS,
    NONCE_AND_BALANCE,
    STORAGE_ROOT,
    AccountToProve,
    BlockBranch,
    HeaderParts,
)
from chains.tries.packed_entries import encode_receipts, encode_transactions
from chains.tries.trie import NO_ACCOUNT
from config.database.statements import chunks
from proving import facts
from proving.facts import AccountFact, EntryFact, HeaderFact, LogFact, Missing, SlotFact, header_words
from proving.models import AccountProof, BlockTrie, SlotProof
from proving.registries.deployments import Call, Deployment, in_one_call
from queries.columns import HeaderField
from queries.models import Block, Query

# Maximum bytes of packed proofs, and maximum gas of executing them. Nodes accept no transaction above 128 KiB, and
# EIP-7825 limits the gas of execution. The rest of a transaction needs some of that.
MAX_BYTES = 110_000
MOST_GAS_OF_PROOFS = 13_000_000
# Limits of a transaction that several blocks share. They are lower, so that fewer blocks are affected if one proof
# reverts, and so that a block of the chain has room for the transaction.
SHARED_GAS, SHARED_BYTES = 6_000_000, 80_000
# Maximum hops in one transaction, so that its gas stays below the limit of proofs.
MAX_HOPS = 40
# The most that verifying and storing an account or slot takes, without calldata, and its packed bytes without trie
# nodes; and a trie node.
_ACCOUNT, _ACCOUNT_BYTES = Load(execution=28_700, words=3), 160
_SLOT, _SLOT_BYTES = Load(execution=7_900, words=1), 70
_NODE = Load(execution=6_000)
# The most that accumulating a header takes, and each of its fields; and a time. All without calldata.
_HEADER, _HEADER_FIELD = Load(execution=37_900, words=1), Load(execution=2_900, words=1)
_TIME = Load(execution=75_800, words=2)
# Maximum gas of other calls in the same transaction, per byte of calldata.
_GAS_OF_OTHER_BYTE = 60
_ROWS_PER_READ = 50
# Factor on a gas estimate, for changes until the transaction is mined, for example by a transaction before it.
GAS_MARGIN = 1.15
# The least that the parts of a proof take, without calldata and new words: a header, an account, a slot, a trie node,
# a receipt or transaction, and a hop, which stores a word.
_LEAST_HEADER, _LEAST_ACCOUNT, _LEAST_SLOT = Load(execution=12_000), Load(execution=2_000), Load(execution=3_000)
_LEAST_NODE, _LEAST_TRANSACTION = Load(execution=800), Load(execution=4_000)
_LEAST_HOP = Load(execution=6_900, words=1)
_WORD = Load(words=1)
# Maximum bytes and gas of a proof of entries, so that a header and other calls fit beside it.
_ENTRY_PROOF_BYTES, _ENTRY_PROOF_GAS = 124_000, 12_000_000
# Maximum bytes of the trie nodes on the way to a receipt or transaction, and maximum gas of rebuilding them.
_ENTRY_NODES_BYTES, _ENTRY_NODES_GAS = 1_000, 20_000
# Maximum gas of a log that is read, and of a byte of what is hashed. The most that storing takes: a log, a receipt's
# fields, or a hash.
_LOG_GAS, _HASHED_BYTE_GAS = 3_000, 3
_STORED = Load(execution=3_900, words=1)


@dataclass(frozen=True)
class Intent:
    """A transaction to send. An empty `to` creates a contract.

    `queries` are the ids of the queries that it is for, and `accumulates` the blocks whose headers it carries. If
    `extends` is given, the id of a registry, the transaction extends that registry's trust to blocks that the queries
    need. It then proves facts only of the block that it accumulates, if any.
    """

    to: str
    data: bytes
    queries: Collection[int] = ()
    accumulates: Sequence[Block] = ()
    extends: int | None = None
    continued: Collection[int] = ()
    """Ids of the queries that the next intent goes on to prove."""
    path_gas: int = 0
    """The expected gas of making blocks' hashes trusted: beside the proofs, or of the whole transaction without any."""
    most: Load | None = None
    """The most that executing it takes, without its calldata; None if only a simulation can tell."""
    least: Load = NO_LOAD
    """The least that executing it takes, without its calldata."""
    gas_limit: int = 0
    """The gas that it takes by its simulation, with a margin; 0: it wasn't simulated."""
    own_limit: int = 0
    """A lower gas limit, if money doesn't suffice for the other one. 0: there is none."""
    data_fee: int = 0
    """The wei that it takes beside gas, on rollups, by its simulation."""

    def cost(self, price: int) -> int:
        """Return its simulated cost in wei at this gas price."""
        return self.gas_limit * price + self.data_fee

    def gas_bound(self, prices: GasPrices) -> int | None:
        """Return an upper bound of its gas. None if only a simulation can tell."""
        if self.most is None:
            return None
        return prices.call + int(prices.gas_of(self.most + Load(size=len(self.data))))

    def signed_load(self, prices: GasPrices) -> Load:
        """Return what its gas limit pays for. Words that it may or may not store count as execution."""
        return Load(execution=max(0, self.gas_limit - self.least.words * prices.new_word), words=self.least.words)

    def least_gas(self, prices: GasPrices) -> int:
        """Return the least gas that it takes after the latest block."""
        return prices.before_execution(self.to, self.data) + int(prices.execution_of(self.least))

    def proves(self) -> Collection[int]:
        """Return the ids of the queries whose facts it proves. For other queries it only makes their blocks known."""
        if self.extends is None:
            return self.queries
        here = Query.objects.filter(pk__in=self.queries, block__in=self.accumulates)
        return list(here.values_list("pk", flat=True))


@dataclass
class EntryPack:
    """Facts about entries under one root of a block, for one proof."""

    root: HeaderField
    facts: list[EntryFact | LogFact] = field(default_factory=list)
    most_bytes: int = 0
    """An upper bound of its packed bytes, without a header."""
    most: Load = NO_LOAD
    """The most that it takes, without calldata."""
    values: Sequence[bytes] = ()
    """All values of the trie, once it is read."""
    queries: frozenset[int] = frozenset()
    """The ids of the queries that request these facts."""

    @property
    def least(self) -> Load:
        """Return the least that it takes, without calldata. Fields of one entry share a word, and each log has one."""
        entries = {fact.entry for fact in self.facts if isinstance(fact, EntryFact)}
        logs = [fact.entry for fact in self.facts if isinstance(fact, LogFact)]
        return _LEAST_TRANSACTION * len(entries.union(logs)) + _WORD * (len(entries) + len(logs))

    def encode(self, block: int | HeaderParts, *, takes_masks: bool = True) -> bytes:
        """Return the packed calldata, as `encode_receipts` does."""
        indexes = {fact.entry for fact in self.facts if isinstance(fact, EntryFact)}
        if self.root == HeaderField.TRANSACTIONS_ROOT:
            return encode_transactions(block, self.values, indexes, takes_masks=takes_masks)
        logs: dict[int, list[int]] = {}
        for fact in self.facts:
            if isinstance(fact, LogFact):
                logs.setdefault(fact.entry, []).append(fact.log)
        return encode_receipts(block, self.values, logs, indexes, takes_masks=takes_masks)


def packs_of_entries(
    facts: Iterable[EntryFact | LogFact], length_of: Callable[[EntryFact | LogFact], int], prices: GasPrices
) -> Iterator[EntryPack]:
    """Yield the packs of these facts of a block. `length_of` returns the bytes of a fact's receipt or transaction.

    A receipt with more logs to store than fit is in several packs.
    """
    pack: EntryPack | None = None
    before: int | None = None
    for fact in sorted(
        facts, key=lambda fact: (fact.root, fact.entry, fact.log + 1 if isinstance(fact, LogFact) else 0)
    ):
        length = length_of(fact)
        new_bytes, new = 2 if isinstance(fact, LogFact) else 0, _STORED
        whole_bytes = new_bytes + length + _ENTRY_NODES_BYTES
        rebuilt = _ENTRY_NODES_GAS + _HASHED_BYTE_GAS * length + _LOG_GAS * (length // 60)
        whole = new + Load(execution=rebuilt)
        if pack is None or pack.root != fact.root or before != fact.entry:
            new_bytes, new = whole_bytes, whole
        is_full = pack is not None and (
            pack.most_bytes + new_bytes > _ENTRY_PROOF_BYTES or not prices.fits(pack.most + new, _ENTRY_PROOF_GAS)
        )
        if pack is None or pack.root != fact.root or is_full:
            if pack is not None:
                yield pack
            pack, new_bytes, new = EntryPack(fact.root), whole_bytes, whole
        pack.facts.append(fact)
        pack.most_bytes += new_bytes
        pack.most += new
        before = fact.entry
    if pack is not None:
        yield pack


class _StatePack:
    """The content of one transaction, with an upper bound of its calldata and gas.

    Packing makes no node longer, and no node occurs twice: a node of the state trie occurs once in a transaction, and a
    node of a storage trie once in its account.
    """

    def __init__(self, prices: GasPrices, queries: Collection[int] = (), *, other_bytes: int = 0) -> None:
        self._prices = prices
        self.queries = set(queries)
        self.continued: set[int] = set()
        """Ids of the queries that another transaction goes on to prove."""
        self._accounts: dict[str, AccountToProve] = {}
        self._slots: dict[str, dict[int, list[bytes]]] = {}
        self._state_nodes: set[bytes] = set()
        self._storage_nodes: dict[str, set[bytes]] = {}
        self.least = NO_LOAD
        """The least that it takes, without calldata."""
        self.most = Load(execution=other_bytes * _GAS_OF_OTHER_BYTE)
        """The most that it takes, without calldata."""
        self._bytes = other_bytes

    @property
    def accounts(self) -> list[AccountToProve]:
        return [replace(account, slots=self._slots[address]) for address, account in self._accounts.items()]

    def add_account(self, address: str, account: AccountToProve, queries: Collection[int]) -> bool:
        """Add an account, and return whether there was room for it."""
        nodes = set(account.nodes) - self._state_nodes
        if not self._take(nodes, _ACCOUNT_BYTES, _ACCOUNT):
            return False
        self._accounts[address], self._slots[address], self._storage_nodes[address] = account, {}, set()
        self._state_nodes |= nodes
        self.queries.update(queries)
        return True

    def add_entries(self, pack: EntryPack) -> bool:
        """Add a proof of entries in a call of its own, and return whether there was room for it."""
        if self._is_full(pack.most_bytes, pack.most):
            return False
        self._bytes += pack.most_bytes
        self.most += pack.most
        self.least += pack.least
        self.queries.update(pack.queries)
        return True

    def add_slot(self, address: str, slot: str, slot_nodes: list[bytes], queries: Collection[int]) -> bool:
        """Add a slot, and return whether there was room for it. Its account must have been added before."""
        nodes = set(slot_nodes) - self._storage_nodes[address]
        if not self._take(nodes, _SLOT_BYTES, _SLOT):
            return False
        self._slots[address][int(slot, 16)] = slot_nodes
        self._storage_nodes[address] |= nodes
        self.queries.update(queries)
        return True

    def _take(self, nodes: Collection[bytes], more_bytes: int, more: Load) -> bool:
        more_bytes += sum(map(len, nodes))
        more += _NODE * len(nodes)
        if self._accounts and self._is_full(more_bytes, more):
            return False
        self._bytes += more_bytes
        self.most += more
        self.least += _LEAST_NODE * len(nodes)
        return True

    def _is_full(self, more_bytes: int, more: Load) -> bool:
        return self._bytes + more_bytes > MAX_BYTES or not self._prices.fits(self.most + more, MOST_GAS_OF_PROOFS)


def about(accounts: int, slots: int, prices: GasPrices, *, nodes: float, size: float) -> int:
    """Estimate the number of transactions for these accounts and slots, from the number and bytes of their nodes."""
    packed_bytes = size + accounts * _ACCOUNT_BYTES + slots * _SLOT_BYTES
    load = _NODE * nodes + _ACCOUNT * accounts + _SLOT * slots
    return max(math.ceil(packed_bytes / MAX_BYTES), prices.transactions_for(load, MOST_GAS_OF_PROOFS))


def intents(
    block: Block,
    registry: Deployment,
    missing: Missing,
    prices: GasPrices,
    *,
    with_header: bool,
    stores_root: bool = False,
    jump: HeaderParts = (),
    calls: Sequence[Call] = (),
    path_gas: int = 0,
    proofs: Mapping[tuple[int, str], AccountProof] = MappingProxyType({}),
) -> Iterator[Intent]:
    """Yield transactions that prove the missing facts. `missing` has the ids of the queries that request each fact.

    Proofs that are not among `proofs` (see `proofs_of`) are read. With `with_header`, the first transaction accumulates
    the header and proves its fields, and the others depend on it. With `stores_root`, the registry doesn't know the
    block's state root. The header's hash must be trusted already, or a `jump` or other `calls` in the same transaction
    must make it trusted, for which `path_gas` is expected. If the only facts are about entries and fit a proof below
    each root, the header is used without being accumulated. `missing` must have no facts about times, because
    `proof_of_time` proves these.
    """
    contract, takes_masks = registry.contract.address, registry.takes_masks
    header = _header(block) if with_header else None
    jump, calls, path_gas = (jump, calls, path_gas) if with_header else ((), (), 0)
    other_bytes = sum(len(part.branch if isinstance(part, BlockBranch) else part) for part in jump)
    other_bytes += sum(len(data) for _, data in calls)
    entry_packs = deque(_missing_entries(block, missing, prices))
    if header and not other_bytes and _asks_only_few_entries(missing, entry_packs):
        # Each proof uses the header. Accumulating it, with its roots, would cost more.
        proofs_of_entries = [(contract, pack.encode([header], takes_masks=takes_masks)) for pack in entry_packs]
        to, data = in_one_call(registry.multicall, proofs_of_entries)
        yield Intent(
            to,
            data,
            set().union(*(pack.queries for pack in entry_packs)),
            most=sum((pack.most + _HEADER for pack in entry_packs), NO_LOAD),
            least=sum((pack.least + _LEAST_HEADER for pack in entry_packs), NO_LOAD),
        )
        return
    queries_by_field = {fact.field: {*queries} for fact, queries in missing.items() if isinstance(fact, HeaderFact)}
    least_of_header = NO_LOAD if header is None else _least_of_header(header, queries_by_field, stores_root=stores_root)
    for pack in entry_packs:
        # Accumulating the header makes this root a fact, so that the proofs below it need no header.
        queries_by_field.setdefault(pack.root, set()).update(pack.queries)
    of_header = {query for queries in queries_by_field.values() for query in queries} if header else set()
    root = bytes.fromhex(block.state_root[2:])

    def of_state(pack: _StatePack, proof: bytes, calls: Sequence[Call] = ()) -> Intent:
        """Return the transaction with the proof of a pack, after these calls.

        It also has proofs of entries as far as there is room.
        """
        all_calls = [*calls, (contract, proof)]
        while entry_packs and pack.add_entries(entry_packs[0]):
            all_calls.append((contract, entry_packs.popleft().encode(block.number, takes_masks=takes_masks)))
        to, data = in_one_call(registry.multicall, all_calls)
        continued = pack.continued.union(*(pack.queries & entries.queries for entries in entry_packs))
        return Intent(to, data, pack.queries, continued=continued, most=pack.most, least=pack.least)

    state_packs = _state_packs(
        block, missing, prices, proofs, first=_StatePack(prices, of_header, other_bytes=other_bytes)
    )
    if header is not None and (first := next(state_packs, None)):
        fields = sorted(queries_by_field)
        proof = packed.encode([*jump, header], root, first.accounts, header_fields=fields, takes_masks=takes_masks)
        intent = of_state(first, proof, calls)
        yield replace(
            intent,
            accumulates=(block,),
            path_gas=path_gas,
            most=None if calls else first.most + _HEADER + _HEADER_FIELD * len(fields),
            least=intent.least + least_of_header,
        )
    # The others are below a state root that the registry knows by then.
    for further in state_packs:
        yield of_state(further, packed.encode(block.number, root, further.accounts, takes_masks=takes_masks))
    # Each of the other proofs of entries in a transaction of its own, below roots that are facts by then.
    while entry_packs:
        pack = entry_packs.popleft()
        yield Intent(
            contract,
            pack.encode(block.number, takes_masks=takes_masks),
            pack.queries,
            continued=set().union(*(pack.queries & further.queries for further in entry_packs)),
            most=pack.most + _HEADER,
            least=pack.least,
        )


def _asks_only_few_entries(missing: Missing, packs: Sequence[EntryPack]) -> bool:
    """Return whether all facts are about entries, and fit one proof below each root, in one transaction."""
    return (
        sum(len(pack.facts) for pack in packs) == len(missing)
        and len(packs) == len({pack.root for pack in packs})
        and (len(packs) == 1 or sum(pack.most_bytes for pack in packs) <= MAX_BYTES)
    )


def _missing_entries(block: Block, missing: Missing, prices: GasPrices) -> Iterator[EntryPack]:
    """Yield the packs of the missing facts about entries, with the values of their tries and their queries."""
    entry_facts = facts.entry_facts(missing)
    if not entry_facts:
        return
    rows = BlockTrie.objects.filter(block=block, root__in={fact.root for fact in entry_facts})
    tries: dict[HeaderField, Sequence[bytes]] = {HeaderField(row.root): row.values for row in rows}
    for pack in packs_of_entries(entry_facts, lambda fact: len(tries[fact.root][fact.entry]), prices):
        pack.values = tries[pack.root]
        pack.queries = frozenset(query for fact in pack.facts for query in missing[fact])
        yield pack


def proof_of_time(
    block: Block, registry: Deployment, following: Header, timestamp: int, queries: Collection[int]
) -> Intent:
    """Return the transaction that proves which block was the latest at a time.

    It also accumulates the block's header.
    """
    data = registry.contract.prove_timestamp(_header(block), following.encode(), timestamp)
    least = _LEAST_HEADER * 2 + _WORD
    return Intent(registry.contract.address, data, queries, accumulates=[block], most=_TIME, least=least)


def _header(block: Block) -> bytes:
    assert block.header_rlp is not None, "INITIAL_STATE is completed"
    return bytes(block.header_rlp)


def proofs_of(missing: Mapping[int, Missing]) -> dict[tuple[int, str], AccountProof]:
    """Read the proofs of the accounts that blocks (ids) lack, by block and address. Leave out blocks with many."""
    few = {block: facts for block, facts in missing.items() if len(facts) <= _ROWS_PER_READ}
    accounts = [fact for facts in few.values() for fact in facts if isinstance(fact, AccountFact | SlotFact)]
    rows = AccountProof.objects.filter(block__in=few, address__in={fact.address for fact in accounts})
    return {(row.block_id, row.address): row for row in rows}


def _state_packs(
    block: Block,
    missing: Missing,
    prices: GasPrices,
    read_proofs: Mapping[tuple[int, str], AccountProof],
    *,
    first: _StatePack,
) -> Iterator[_StatePack]:
    fields: dict[str, int] = defaultdict(int)
    slots: dict[str, dict[str, Collection[int]]] = defaultdict(dict)
    asking: dict[str, set[int]] = defaultdict(set)
    for fact, queries in missing.items():
        if isinstance(fact, AccountFact):
            fields[fact.address] |= 1 << fact.field
            asking[fact.address].update(queries)
        elif isinstance(fact, SlotFact):
            slots[fact.address][fact.slot] = queries
    pack = first
    # Neighbours in a trie share nodes. In the order of keys, most neighbours are in the same transaction.
    for chunk in chunks(sorted({*fields, *slots}, key=_key), _ROWS_PER_READ):
        proofs = _proofs(block, chunk, read_proofs)
        for address in chunk:
            proof = proofs[address]
            account = AccountToProve(bytes.fromhex(address[2:]), fields[address], _bytes(proof.nodes))
            if not pack.add_account(address, account, asking[address]):
                yield pack
                pack = _StatePack(prices)
                pack.add_account(address, account, asking[address])
            pack.least += _least_of_account(proof, account.fields)
            for slot_proof in _slot_proofs(proof, sorted(slots[address], key=_key)):
                slot, nodes = slot_proof.slot, _bytes(slot_proof.nodes)
                if not pack.add_slot(address, slot, nodes, slots[address][slot]):
                    pack.continued.update(asking[address], *slots[address].values())
                    yield pack
                    pack = _StatePack(prices)
                    pack.add_account(address, replace(account, fields=0), ())
                    pack.add_slot(address, slot, nodes, slots[address][slot])
                # Slots that are zero share words, which may be there.
                pack.least += _LEAST_SLOT + _WORD * (slot_proof.value != 0)
    if pack.queries:
        yield pack


def _proofs(
    block: Block, addresses: Sequence[str], read_proofs: Mapping[tuple[int, str], AccountProof]
) -> dict[str, AccountProof]:
    """Return the block's proofs of these accounts by address. Read those that weren't read before."""
    proofs = {address: read_proofs[block.pk, address] for address in addresses if (block.pk, address) in read_proofs}
    if unread := [address for address in addresses if address not in proofs]:
        proofs |= {row.address: row for row in AccountProof.objects.filter(block=block, address__in=unread)}
    return proofs


def _slot_proofs(proof: AccountProof, slots: Sequence[str]) -> Iterator[SlotProof]:
    for chunk in chunks(slots, _ROWS_PER_READ):
        proofs = {row.slot: row for row in SlotProof.objects.filter(account=proof, slot__in=chunk)}
        yield from (proofs[slot] for slot in chunk)


def _least_of_account(proof: AccountProof, fields: int) -> Load:
    """Return the least that an account takes, without trie nodes. An absent account takes a word for all fields."""
    words = sum(bool(fields & word) for word in (NONCE_AND_BALANCE, STORAGE_ROOT, CODE_HASH))
    exists = proof.code_hash != hex_data(NO_ACCOUNT.code_hash)
    return _LEAST_ACCOUNT + _WORD * (words if exists else min(words, 1))


def _least_of_header(header: bytes, fields: Collection[HeaderField], *, stores_root: bool) -> Load:
    """Return the least that a header takes. Fields that are zero share a word, which may be there."""
    words = header_words(Header.decode(header)) if fields else {}
    stored = (any(words.get(field, b"")) for field in fields if field not in IMPLIED_HEADER_FIELDS)
    return _LEAST_HEADER + _WORD * (stores_root + sum(stored))


def least_of_hops(hops: int) -> Load:
    """Return the least that consecutive hops take. Each but the first begins with a header."""
    return _LEAST_HOP * hops + _LEAST_HEADER * max(0, hops - 1)


def _key(text: str) -> bytes:
    """Return the key of an address or a slot in its trie."""
    return keccak(bytes.fromhex(text[2:]))


def _bytes(nodes: Sequence[str]) -> list[bytes]:
    return [bytes.fromhex(node[2:]) for node in nodes]
