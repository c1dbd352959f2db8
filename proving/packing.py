"""Packs what is missing of one block into transactions, as few as their limits allow."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eth_utils.crypto import keccak

from chains.packed import AccountToProve
from proving.facts import AccountFact, Fact, HeaderFact, SlotFact
from proving.models import AccountProof, SlotProof
from proving.registry import Registry
from proving.transactions import Intent
from queries.chunks import chunks
from queries.models import Block

# Nodes take no transaction above 128 KiB, and EIP-7825 bounds its gas at 16,777,216; both with room for the rest of it.
_MAX_BYTES = 100_000
_MAX_GAS = 13_000_000
# What verifying and storing takes at the most, beside calldata.
_ACCOUNT_GAS = 95_000
_SLOT_GAS = 50_000
_NODE_GAS = 1_500
_ACCOUNTS_PER_READ = 50


@dataclass
class _Pack:
    """What goes into one transaction."""

    accounts: list[AccountToProve] = field(default_factory=list)
    queries: set[int] = field(default_factory=set)
    nodes: set[bytes] = field(default_factory=set)
    size: int = 0
    gas: int = 0

    def has_room(self, nodes: Collection[bytes], gas: int) -> bool:
        size = sum(map(len, self._unseen(nodes)))
        return not self.accounts or (self.size + size <= _MAX_BYTES and self.gas + gas <= _MAX_GAS)

    def add(self, account: AccountToProve, nodes: Collection[bytes], gas: int, queries: Collection[int]) -> None:
        # Nodes that it holds already cost nothing more; packed, no node is longer than it was.
        self.size += sum(map(len, self._unseen(nodes)))
        self.gas += gas
        self.nodes.update(nodes)
        self.accounts.append(account)
        self.queries.update(queries)

    def _unseen(self, nodes: Collection[bytes]) -> list[bytes]:
        return [node for node in nodes if node not in self.nodes]


def intents(
    block: Block, registry: Registry, missing: Mapping[Fact, Collection[int]], *, header: bytes | None
) -> Iterator[Intent]:
    """Transactions that prove the missing facts; each fact comes with the ids of the queries that ask for it.

    With `header` each would accumulate it: only the first may be sent, and fields of the header go with it. Facts about
    times are not of this kind.
    """
    fields = {fact.field: queries for fact, queries in missing.items() if isinstance(fact, HeaderFact)}
    of_header = {query for queries in fields.values() for query in queries}
    for pack in _packs(block, missing, first=_Pack(queries=of_header)):
        data = registry.prove(
            block.number if header is None else header,
            bytes.fromhex(block.state_root[2:]),
            pack.accounts,
            header_fields=() if header is None else sorted(fields),
        )
        yield Intent(registry.address, data, pack.queries, accumulates=None if header is None else block)


def _packs(block: Block, missing: Mapping[Fact, Collection[int]], *, first: _Pack) -> Iterator[_Pack]:
    fields: dict[str, int] = defaultdict(int)
    slots: dict[str, list[str]] = defaultdict(list)
    asking: dict[str, set[int]] = defaultdict(set)
    for fact, queries in missing.items():
        if isinstance(fact, AccountFact):
            fields[fact.address] |= 1 << fact.field
        elif isinstance(fact, SlotFact):
            slots[fact.address].append(fact.slot)
        else:
            continue
        asking[fact.address].update(queries)
    # Neighbours in the trie share nodes: in the order of their keys, most of those end up in one transaction.
    addresses = sorted(asking, key=lambda address: keccak(bytes.fromhex(address[2:])))
    pack = first
    for chunk in chunks(addresses, _ACCOUNTS_PER_READ):
        proofs = {proof.address: proof for proof in AccountProof.objects.filter(block=block, address__in=chunk)}
        for address in chunk:
            for account in _portions(proofs[address], fields[address], slots[address]):
                nodes = [*account.nodes, *(node for slot in account.slots.values() for node in slot)]
                gas = _ACCOUNT_GAS + len(account.slots) * _SLOT_GAS + len(nodes) * _NODE_GAS
                if not pack.has_room(nodes, gas):
                    yield pack
                    pack = _Pack()
                pack.add(account, nodes, gas, asking[address])
    if pack.queries:
        yield pack


def _portions(proof: AccountProof, fields: int, slots: Sequence[str]) -> Iterator[AccountToProve]:
    """An account with its slots, in pieces that fit a transaction each."""
    address, nodes = bytes.fromhex(proof.address[2:]), _bytes(proof.nodes)
    if not slots:
        yield AccountToProve(address, fields, nodes)
        return
    size = sum(map(len, nodes))
    portion: dict[int, list[bytes]] = {}
    seen: set[bytes] = set()
    for slot in sorted(slots, key=lambda slot: keccak(bytes.fromhex(slot[2:]))):
        slot_nodes = _bytes(SlotProof.objects.values_list("nodes", flat=True).get(account=proof, slot=slot))
        more = sum(len(node) for node in slot_nodes if node not in seen)
        if portion and (size + more > _MAX_BYTES or (len(portion) + 1) * _SLOT_GAS > _MAX_GAS // 2):
            yield AccountToProve(address, fields, nodes, portion)
            fields, portion, seen, size = 0, {}, set(), sum(map(len, nodes))
            more = sum(map(len, slot_nodes))
        portion[int(slot, 16)] = slot_nodes
        seen.update(slot_nodes)
        size += more
    yield AccountToProve(address, fields, nodes, portion)


def _bytes(nodes: Sequence[str]) -> list[bytes]:
    return [bytes.fromhex(node[2:]) for node in nodes]
