"""Foreign transactions: those with a signer's key that this service didn't send.

The chain has used their nonces, and no stored transaction has.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from django.db import DatabaseError
from django.utils import timezone
from eth_utils.crypto import keccak
from hexbytes import HexBytes

from chains.nodes import block_transactions, questions
from chains.nodes.chain_nodes import Question
from chains.nodes.node_errors import ChainError
from chains.nodes.questions import ProofRequest, VerifiedAccountProof
from chains.nodes.rpc import RpcClient
from chains.tries.header import Header
from chains.tries.trie import StateAccount
from proving.models import Signer, Transaction, TransactionState

logger = logging.getLogger(__name__)

# Every node keeps the states of so many blocks, also while a few more come.
_KEPT_STATES = 120
# Maximum waiting transactions whose receipts an observation requests. Those of the lowest nonces are first, and leave
# once they are mined or displaced.
_MOST_EXAMINED = 8
# Maximum waiting transactions among them for whose nonces it searches blocks. Each takes about five exchanges.
_MOST_SEARCHED = 2
# Maximum steps of a search in one exchange: two exchanges find one of `_KEPT_STATES` blocks.
_STEPS = 12


@dataclass(frozen=True)
class NextNonce:
    """A signer's next nonce on the chain."""

    number: int
    is_sure: bool
    """True if several nodes report it, or one proves it. False if only doubtful ones of `taken` show others' use."""
    taken: frozenset[int] = frozenset()
    """Nonces below it that waiting transactions have, and that others have used."""


def examine(rpc: RpcClient, address: str, head: Header, nonce: int, *, is_compared: bool) -> NextNonce:
    """Look for foreign transactions if a signer's next `nonce`, which nodes report, shows that there may be some.

    If only one node has reported it, a proof at the head counts more. Raises `ChainError`.
    """
    row, unseen = None, list[Transaction]()
    # Nodes are checked before the database exists, too.
    with suppress(DatabaseError):
        row = Signer.objects.filter(chain_id=rpc.chain.id, address=address).first()
    if row and row.accounted_nonce is not None:
        pending = row.transactions.filter(state=TransactionState.PENDING, nonce__gte=row.accounted_nonce)
        waiting = pending.filter(nonce__lt=nonce).order_by("nonce").defer("data").prefetch_related("versions")
        unseen = _without_receipts(rpc, waiting[:_MOST_EXAMINED])
        may_be_lowered = row.accounted_is_doubtful and nonce < row.accounted_nonce
        if not unseen and not may_be_lowered and not count(row, nonce):
            return NextNonce(nonce, is_sure=is_compared)
    is_proven = False
    if not is_compared and (proven := _proven(rpc, address, [head])):
        nonce, is_proven = proven[0].nonce, True
    sure, doubtful = set[int](), set[int]()
    for tx in [tx for tx in unseen if tx.nonce < nonce][:_MOST_SEARCHED]:
        is_ours, is_known = is_in_block(rpc, tx, head)
        if is_ours:
            break  # The nodes lack receipts, also those of later nonces.
        if is_ours is False and is_known:
            sure.add(tx.nonce)
        # An earlier finding stays while no node shows the block.
        elif is_ours is False or (row and count(row, nonce, {tx.nonce, *sure, *doubtful}) <= row.foreign_count):
            doubtful.add(tx.nonce)
    is_sure = is_compared or is_proven
    if row and doubtful:
        is_sure = is_sure and count(row, nonce, sure) > 0
    return NextNonce(nonce, is_sure, frozenset(sure | doubtful))


def is_in_block(rpc: RpcClient, tx: Transaction, head: Header) -> tuple[bool | None, bool]:
    """Return whether the block that has used a transaction's nonce holds one of its versions, and if that is sure.

    A node may lack receipts, but it can't hide a transaction of a block, because all of them make a root in its header.
    It may lie about the nonces, or invent a block. So it is sure only if nodes agree about the block, and a proof or
    several nodes show that it has used the nonce. None: it isn't known, or the head alone has used the nonce.
    """
    found = set[tuple[bool, bool]]()
    with suppress(ChainError):
        blocks = range(max(0, head.number - _KEPT_STATES), head.number)
        for number in _using(rpc, tx.signer.address, tx.nonce, blocks) if tx.hashes and blocks else ():
            found |= _in_block(rpc, tx, number)
    return next((verdict for verdict in _BY_WEIGHT if verdict in found), (None, False))


# A doubtful block that holds the transaction is no reason to hide what another block shows.
_BY_WEIGHT = [(True, True), (False, True), (False, False), (True, False)]


def _using(rpc: RpcClient, address: str, nonce: int, blocks: range) -> set[int]:
    """Return the blocks of which a node says that they have used a nonce, without the first of these blocks."""
    step = -(-len(blocks) // _STEPS)
    numbers = sorted({*blocks[::step], *blocks[-1:]})
    found = set[tuple[int, int]]()
    for nonces in _of_nodes(rpc, [questions.nonce(address, number) for number in numbers]):
        for (before, earlier), (using, later) in pairwise(zip(numbers, nonces, strict=True)):
            if _uses(nonce, earlier, later):
                found.add((before, using))
                break
    if step == 1:
        return {using for _, using in found}
    return {using for ends in found for using in _using(rpc, address, nonce, range(ends[0], ends[1] + 1))}


def _in_block(rpc: RpcClient, tx: Transaction, number: int) -> set[tuple[bool, bool]]:
    """Return whether a block holds a version of a transaction whose nonce it has used, and if that is sure.

    There is one answer for each block of this number that a node has. A block that hasn't used the nonce has none.
    """
    address, numbers = tx.signer.address, (number - 1, number)
    asked: list[Question[Any]] = [questions.header(each) for each in numbers]
    nodes = _of_nodes(rpc, asked + [questions.nonce(address, each) for each in numbers])
    blocks: dict[tuple[Header, Header], list[bool]] = {}
    for before, using, earlier, later in nodes:
        if isinstance(before, Header) and isinstance(using, Header):
            blocks.setdefault((before, using), []).append(_uses(tx.nonce, earlier, later))
    found = set[tuple[bool, bool]]()
    for (before, using), says in blocks.items():
        is_shared = len(blocks) == 1 and len(says) >= min(2, len(nodes))
        # Nodes have no transactions of a block that another node has invented.
        with suppress(ChainError):
            proven = _proven(rpc, address, [before, using])
            if any(says) if not proven else proven[0].nonce <= tx.nonce < proven[1].nonce:
                hashes = set(map(keccak, block_transactions.of_block(rpc, using)))
                is_ours = not hashes.isdisjoint(map(HexBytes, tx.hashes))
                is_agreed = len(says) > 1 and all(says)
                found.add((is_ours, is_shared and (is_ours or bool(proven) or is_agreed)))
    return found


def _uses(nonce: int, earlier: int | ChainError, later: int | ChainError) -> bool:
    """Return whether the answers about the next nonce before and after say that this one was used in between."""
    return isinstance(earlier, int) and isinstance(later, int) and earlier <= nonce < later


def _of_nodes(rpc: RpcClient, asked: Sequence[Question[Any]]) -> list[list[Any]]:
    """Return the answers of each node that isn't down."""
    return list(rpc.ask_each(asked).values()) or [rpc.ask(asked)]


def _without_receipts(rpc: RpcClient, transactions: Iterable[Transaction]) -> list[Transaction]:
    """Return the transactions of whose versions no node has a receipt."""
    asked = [questions.receipt(HexBytes(tx_hash)) for tx in transactions for tx_hash in tx.hashes]
    told = _of_nodes(rpc, asked) if asked else ()
    mined = {answer.tx_hash for of_node in told for answer in of_node if isinstance(answer, questions.Receipt)}
    return [tx for tx in transactions if mined.isdisjoint(map(HexBytes, tx.hashes))]


def _proven(rpc: RpcClient, address: str, headers: Sequence[Header]) -> list[StateAccount]:
    """Return the account at these blocks by proof. Empty if no node proves it."""
    requests = [ProofRequest(header.number, header.hash, header.state_root, address) for header in headers]
    proofs = [proof for proof in rpc.proofs(requests) if isinstance(proof, VerifiedAccountProof)]
    return [proof.account for proof in proofs] if len(proofs) == len(requests) else []


def count(row: Signer, nonce: int, taken: Collection[int] = ()) -> int:
    """Return how many nonces below `nonce`, the chain's next one, foreign transactions have used.

    Read the chain's nonce first: a transaction is stored before it is signed. Nonces before the first observation
    don't count, and neither do those that the operator has accepted. Others have `taken` those of waiting transactions.
    """
    if row.accounted_nonce is None:
        return 0
    used = row.transactions.filter(nonce__gte=row.accounted_nonce, nonce__lt=nonce)
    ours = used.exclude(state=TransactionState.DISPLACED).exclude(nonce__in=taken).count()
    return max(0, nonce - row.accounted_nonce - ours)


def note(row: Signer, seen: NextNonce) -> None:
    """Store the number of foreign transactions. The caller has locked the row.

    They are suspected until it is sure that one of them exists. From then on they are sure until none is left.
    """
    number, since = count(row, seen.number, seen.taken), row.foreign_since
    accounted, is_doubtful = row.accounted_nonce, row.accounted_is_doubtful
    is_suspected = True if number and not seen.is_sure and not row.is_robbed else None
    if number > row.foreign_count:
        has_used = "seems to have used" if is_suspected else "has used"
        logger.error("the signer %s %s %d nonces for foreign transactions", row, has_used, number)
    if accounted is None or (is_doubtful and seen.number < accounted):
        accounted, is_doubtful = seen.number, None if seen.is_sure else True
    elif not number:
        is_doubtful = None if seen.is_sure else is_doubtful
        # Transactions that aren't final are counted again, because they may be displaced.
        used = row.transactions.filter(nonce__gte=accounted, nonce__lt=seen.number)
        used = used.exclude(state=TransactionState.FINAL)
        accounted = next(iter(used.order_by("nonce").values_list("nonce", flat=True)[:1]), max(seen.number, accounted))
    before = (row.foreign_count, row.foreign_is_suspected, row.accounted_nonce, row.accounted_is_doubtful)
    if (number, is_suspected, accounted, is_doubtful) != before:
        since = (since or timezone.now()) if number else None
        Signer.objects.filter(pk=row.pk).update(
            accounted_nonce=accounted,
            accounted_is_doubtful=is_doubtful,
            foreign_count=number,
            foreign_since=since,
            foreign_is_suspected=is_suspected,
        )
