"""Fetch account proofs at a source block (INITIAL_STATE), and verify them against its state root.

Nothing is written to the database here. After the proofs are stored, no archive node is needed.
"""

import logging
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from chains import questions
from chains.encoding import hex_data
from chains.header import Header
from chains.node_errors import ChainError, RpcRefused, UnverifiedProof
from chains.questions import ProofRequest, VerifiedAccountProof
from chains.rpc import RpcClient
from database.statements import by_size, chunks
from proving import block_contents, facts, kept
from proving.block_contents import NamedEntry, Unprovable
from proving.models import AccountProof, BlockTrie, ProvenTransaction, SlotProof
from queries import waits
from queries.columns import HeaderField
from queries.models import Block, Query, QueryKind, StepKind, open_queries
from queries.waits import WaitReason, wait

logger = logging.getLogger(__name__)

# Maximum accounts and slots that are fetched and stored together. It limits memory, and the lost work after a kill.
_ACCOUNTS_PER_FETCH = 100
_SLOTS_PER_FETCH = 200
# Maximum slots of one account per request.
_SLOTS_PER_REQUEST = 50


@dataclass(frozen=True)
class Proven:
    """A verified proof of an account and of some slots, in rows that aren't stored yet."""

    account: AccountProof
    slots: Sequence[SlotProof]


@dataclass(frozen=True)
class StoredContents:
    """Tries of a block and transactions that queries name, in rows that aren't stored yet."""

    tries: Sequence[BlockTrie]
    transactions: Sequence[ProvenTransaction]
    places: Mapping[int, tuple[int, int | None]]
    """The transaction's index, and its first log's index within the block, by the query's id."""


@dataclass
class Fetched:
    """The fetched proofs of one block, to be stored."""

    proofs: list[Proven] = field(default_factory=list)
    faults: dict[int, WaitReason] = field(default_factory=dict)
    """Faults of proofs by the ids of queries."""
    transactions: Sequence[StoredContents] = ()
    complete: list[int] = field(default_factory=list)
    """Ids of queries that lack no proof."""


@dataclass(frozen=True)
class WaitingAccount:
    """An account, and the open queries about it at one block that wait for its proof."""

    block: Block
    address: str
    queries: Sequence[Query]


@dataclass
class WaitingQueries:
    """The open queries in INITIAL_STATE of some blocks, as far as a turn proves them, by what they wait for."""

    accounts: list[WaitingAccount] = field(default_factory=list)
    headers: dict[Block, list[Query]] = field(default_factory=lambda: defaultdict(list))
    transactions: dict[Block, list[Query]] = field(default_factory=lambda: defaultdict(list))
    selecting: dict[Block, dict[NamedEntry, list[int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    """The transactions that select a block, with the ids of the queries."""
    partly: set[int] = field(default_factory=set)
    """The ids of blocks with more accounts, or left for the next turn."""

    def leave(self, blocks: Collection[Block]) -> None:
        """Leave all queries of these blocks for the next turn."""
        self.accounts = [account for account in self.accounts if account.block not in blocks]
        for block in blocks:
            self.headers.pop(block, None)
            self.transactions.pop(block, None)
        self.partly |= {block.pk for block in blocks}


def waiting(blocks: Sequence[Block], most: int) -> WaitingQueries:
    """Return what the blocks' open queries need, with at most this number of accounts."""
    by_pk, waiting = {block.pk: block for block in blocks}, WaitingQueries()
    asking: dict[tuple[int, str], list[int]] = defaultdict(list)
    chosen: list[int] = []
    rows = open_queries(blocks).filter(step=StepKind.INITIAL_STATE).order_by("pk")
    for pk, block, kind, *names in rows.values_list("pk", "block", "kind", "address", "transaction_name", "block_of"):
        address, transaction, selecting = names
        if kind == QueryKind.ACCOUNT:
            asking[block or 0, address].append(pk)
        else:
            chosen.append(pk)
        # A query about the selecting transaction itself finds it when its own proof is fetched.
        if selecting and selecting != transaction:
            waiting.selecting[by_pk[block or 0]][NamedEntry(selecting)].append(pk)
    # The order is random, so that accounts for which nodes hang aren't always first. Users with few come before others,
    # because the turn may end before all are fetched.
    sizes = Counter(by_pk[block].queued_for_id for block, _ in asking)
    keys = sorted(random.sample(list(asking), len(asking)), key=lambda key: sizes[by_pk[key[0]].queued_for_id])
    queries = Query.objects.in_bulk([*chosen, *(pk for key in keys[:most] for pk in asking[key])])
    for pk in chosen:
        if query := queries.get(pk):
            of_kind = waiting.headers if query.kind == QueryKind.HEADER else waiting.transactions
            of_kind[by_pk[query.block_id or 0]].append(query)
    for key in keys[:most]:
        of_account = [queries[pk] for pk in asking[key] if pk in queries]
        waiting.accounts.append(WaitingAccount(by_pk[key[0]], key[1], of_account))
    waiting.partly = {block for block, _ in keys[most:]}
    return waiting


def unselected(
    source: RpcClient, waiting: WaitingQueries, should_end: Callable[[], bool]
) -> dict[int, dict[int, WaitReason]]:
    """Return the faults of queries whose blocks don't hold the transactions that select them.

    The faults are by block id and query id. Admission checked blocks that existed then, but a reorganisation moves
    transactions. If the turn should end, the blocks that aren't read wait for the next one.
    """
    faults: dict[int, dict[int, WaitReason]] = defaultdict(dict)
    for place, (block, named) in enumerate(waiting.selecting.items()):
        if place and should_end():
            waiting.leave([*waiting.selecting][place:])
            break
        entries = block_contents.find(source, _header(block), named)
        for transaction, fault in entries.faults.items():
            faults[block.pk] |= dict.fromkeys(named[transaction], _fault(fault, _receipts_of(source, block)))
    return faults


def of_headers(asking: Mapping[Block, Sequence[Query]]) -> dict[int, Fetched]:
    """Return, by block id, the queries that only need the header, which is stored.

    Admission checked that the header has the requested fields. A header without them comes from another chain's node.
    """
    by_block: dict[int, Fetched] = {}
    for block, queries in asking.items():
        header, fetched = _header(block), Fetched()
        for query in queries:
            if lacking := facts.lacking(header, query.header_fields):
                why = facts.why_lacking(block.source_chain_id, header, lacking)
                fetched.faults[query.pk] = wait("node_doubted", reason=why)
            else:
                fetched.complete.append(query.pk)
        by_block[block.pk] = fetched
    return by_block


def _header(block: Block) -> Header:
    return Header.decode(bytes(block.header_rlp or b""))


def _receipts_of(source: RpcClient, block: Block) -> str:
    """Return the words for a block's receipts in sentences."""
    return f"the receipts of block {block.number} of {source.chain.label}"


def of_entries(source: RpcClient, asking: Mapping[Block, Sequence[Query]]) -> Iterator[dict[int, Fetched]]:
    """Yield the receipts that these queries need, one block after another, by its id. The caller stores each first."""
    for block, queries in asking.items():
        yield {block.pk: _of_entries(source, block, queries)}


def _of_entries(source: RpcClient, block: Block, queries: Sequence[Query]) -> Fetched:
    named = {query.pk: NamedEntry.of_query(query) for query in queries}
    entries = block_contents.find(source, _header(block), named.values())
    faults = {
        pk: _fault(entries.faults[transaction], _receipts_of(source, block))
        for pk, transaction in named.items()
        if transaction in entries.faults
    }
    if (contents := entries.contents) is None:
        return Fetched(faults=faults)
    there = {pk: entries.found[transaction] for pk, transaction in named.items() if pk not in faults}
    # All transactions are kept where one is named by its hash, too: they show that it is the one at the index.
    needed = {fact.root for transaction in there.values() for fact in transaction.facts}
    needed |= {HeaderField.TRANSACTIONS_ROOT} if any(named[pk].needs_transactions for pk in there) else set()
    tries = [BlockTrie.of(block, root, values) for root, values in contents.tries.items() if root in needed]
    sizes = contents.size({transaction.index for transaction in there.values()}).entries
    rows = {
        transaction.index: ProvenTransaction(
            block=block,
            index=transaction.index,
            receipt=transaction.value,
            hash=transaction.hash,
            receipt_size=sizes[transaction.index].receipt,
            log_count=sizes[transaction.index].logs,
            transaction_size=sizes[transaction.index].transaction,
        )
        for transaction in there.values()
    }
    places = {pk: (transaction.index, transaction.first_log) for pk, transaction in there.items()}
    stored = StoredContents(tries, list(rows.values()), places)
    return Fetched(faults=faults, transactions=[stored], complete=list(there))


def fetch(source: RpcClient, accounts: Sequence[WaitingAccount]) -> Iterator[dict[int, Fetched]]:
    """Yield the missing proofs of these accounts by block id, in parts. The caller stores each part before the next.

    An account that no node proves delays the others only for the time of its request.
    """
    for some in chunks(accounts, _ACCOUNTS_PER_FETCH):
        lacking = _lacking(some)
        pieces = list(by_size(lacking, lambda pair: len(pair[1].slots), _SLOTS_PER_FETCH))
        failed: set[tuple[int, str]] = set()
        for place, piece in enumerate(pieces or [[]], 1):
            proofs, faults = _proofs(source, piece)
            failed |= faults.keys()
            parts: dict[int, Fetched] = defaultdict(Fetched)
            for (pk, _), proven in proofs.items():
                parts[pk].proofs.append(proven)
            for account in some:
                pk, key = account.block.pk, (account.block.pk, account.address)
                of_account = [query.pk for query in account.queries]
                if key in faults:
                    parts[pk].faults |= dict.fromkeys(of_account, faults[key])
                elif key not in failed and place >= len(pieces):
                    # The last piece completes the proofs of all accounts.
                    parts[pk].complete += of_account
            yield parts


def _lacking(accounts: Sequence[WaitingAccount]) -> Iterator[tuple[Block, ProofRequest]]:
    """Yield requests for proofs of these accounts that aren't stored or were pruned.

    The slots per request are limited, so an account with thousands of slots needs several requests. Nodes may be too
    slow for many slots, so each consecutive failure halves the limit.
    """
    stored = AccountProof.objects.exclude(nodes=[]).filter(
        block__in={account.block.pk for account in accounts}, address__in={account.address for account in accounts}
    )
    ids = {(block, address): pk for block, address, pk in stored.values_list("block", "address", "pk")}
    rows = SlotProof.objects.exclude(nodes=[]).filter(account__in=ids.values())
    stored_slots = set(rows.values_list("account", "slot"))
    for account in accounts:
        block, pk = account.block, ids.get((account.block.pk, account.address))
        missing_slots = [slot for query in account.queries for slot in query.slots if (pk, slot) not in stored_slots]
        keys = list(dict.fromkeys(int(slot, 16) for slot in missing_slots))
        most = max(1, _SLOTS_PER_REQUEST >> min(block.attempts, 16))
        for slots in list(chunks(keys, most)) or ([[]] if pk is None else []):
            block_hash, root = bytes.fromhex(block.hash[2:]), bytes.fromhex(block.state_root[2:])
            yield block, ProofRequest(block.number, block_hash, root, account.address, slots)


def _proofs(
    source: RpcClient, lacking: Sequence[tuple[Block, ProofRequest]]
) -> tuple[dict[tuple[int, str], Proven], dict[tuple[int, str], WaitReason]]:
    """Request proofs. Return the proofs and the errors, each by block id and address."""
    known = [kept.take_proof(source, request) for _, request in lacking]
    unknown = [request for (_, request), proof in zip(lacking, known, strict=True) if proof is None]
    # The additional request shows whether a node that serves no proof is down.
    beside = [questions.plain("eth_chainId")] if unknown else ()
    asked = iter(source.proofs(unknown, beside=beside))
    answers = [proof or next(asked) for proof in known]
    # Several requests may be about the same account, with different slots.
    proofs: dict[tuple[int, str], Proven] = {}
    failed: dict[tuple[int, str], WaitReason] = {}
    for (block, request), answer in zip(lacking, answers, strict=True):
        key = block.pk, request.address
        if isinstance(answer, ChainError):
            failed[key] = _fault(answer, facts.proof_of(source.chain, request))
            continue
        proven = _rows(block, answer)
        before = proofs.get(key)
        proofs[key] = replace(proven, slots=[*before.slots, *proven.slots]) if before else proven
    return proofs, failed


def _fault(error: ChainError | Unprovable, of_what: str) -> WaitReason:
    """Return the fault of queries whose proof can't be had. `of_what` names the proof in sentences."""
    match error:
        case Unprovable():
            return error.reason
        case RpcRefused():
            logger.info("no proof: %s: %s", of_what, error.for_operators)
            return wait("node_fails" if error.may_pass else "proof_refused", problem=error.about(of_what))
        case UnverifiedProof():
            return wait("proof_refused", problem=f"{'; '.join(error.reasons)}.")
        case _:
            return waits.fault(error)


def _rows(block: Block, answer: VerifiedAccountProof) -> Proven:
    account = answer.account
    row = AccountProof(
        block=block,
        address=answer.address,
        nodes=_hex(answer.nodes),
        nonce=account.nonce,
        balance=account.balance,
        storage_root=hex_data(account.storage_root),
        code_hash=hex_data(account.code_hash),
    )
    slots = [
        SlotProof(slot=f"0x{proof.slot:064x}", nodes=_hex(proof.nodes), value=proof.value) for proof in answer.slots
    ]
    return Proven(row, slots)


def _hex(nodes: Iterable[bytes]) -> list[str]:
    return [hex_data(node) for node in nodes]
