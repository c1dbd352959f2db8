"""INITIAL_STATE: fetches a source block's header and account proofs, verifies them against the block hash, stores them.

From then on no archive node is needed. A proof that doesn't verify is a node that lies or lags, never a fact.
"""

import logging
from collections.abc import Sequence

from chains.header import Header
from chains.rpc import InvalidReply, NodeUnavailable, RpcClient, RpcRefused
from chains.trie import InvalidProof, verify_account
from proving.models import AccountProof
from queries import progress
from queries.chunks import chunks
from queries.leases import Lease
from queries.models import OPEN_STATUSES, BatchStatus, Block, Query, StepKind

logger = logging.getLogger(__name__)

# Accounts whose proofs are fetched and stored in one go: bounds memory, and what a kill makes us fetch again.
_CHUNK = 100


class ProofRefused(Exception):
    """No node serves proofs at this block; the message is the nodes' answer, a sentence."""


def take_header(lease: Lease[Block], header: Header) -> None:
    """Store the block's header; if the source chain had another one before, everything built on that starts anew."""
    block = lease.row
    new_hash = "0x" + header.hash.hex()
    if block.hash == new_hash:
        return
    with lease.writing() as fresh:
        if fresh.hash:
            AccountProof.objects.filter(block=fresh).delete()
            affected = fresh.queries.exclude(batch__status=BatchStatus.REJECTED).values_list("pk", flat=True)
            reason = f"The source chain was reorganised: block {block.number} was {fresh.hash} and is now {new_hash}."
            progress.reopen(list(affected), StepKind.INITIAL_STATE, reason=reason)
        fresh.hash = new_hash
        fresh.header_rlp = header.encode()
        fresh.state_root = "0x" + header.state_root.hex()
        fresh.timestamp = header.timestamp
        fresh.save(update_fields=["hash", "header_rlp", "state_root", "timestamp"])


def fetch_proofs(lease: Lease[Block], source: RpcClient) -> Exception | None:
    """Complete INITIAL_STATE of the block's open queries, of as many as can be.

    Returns what is wrong with the others, if anything is: one account that no node proves holds up no other. Raises
    `NodeUnavailable`.
    """
    block = lease.row
    waiting = Query.objects.filter(block=block, step=StepKind.INITIAL_STATE, batch__status__in=OPEN_STATUSES)
    known = set(AccountProof.objects.filter(block=block).values_list("address", flat=True))
    by_address: dict[str, list[int]] = {}
    for pk, address in waiting.exclude(batch__status=BatchStatus.RECEIVED).values_list("pk", "address"):
        by_address.setdefault(address, []).append(pk)
    problems: list[Exception] = []
    for chunk in chunks(sorted(by_address), _CHUNK):
        proofs, failed = _verified_proofs(block, source, [address for address in chunk if address not in known])
        verified = [address for address in chunk if address not in failed]
        with lease.writing():
            AccountProof.objects.bulk_create(proofs, ignore_conflicts=True)
            progress.complete([pk for address in verified for pk in by_address[address]], StepKind.INITIAL_STATE)
        problems += failed.values()
    return problems[0] if problems else None


def _verified_proofs(
    block: Block, source: RpcClient, addresses: Sequence[str]
) -> tuple[list[AccountProof], dict[str, Exception]]:
    """The proofs that verify, and what is wrong with the others, by address."""
    state_root = bytes.fromhex(block.state_root[2:])
    answers = source.proofs(block.number, bytes.fromhex(block.hash[2:]), [(address, []) for address in addresses])
    proofs: list[AccountProof] = []
    failed: dict[str, Exception] = {}
    for address, answer in zip(addresses, answers, strict=True):
        if isinstance(answer, RpcRefused):
            failed[address] = NodeUnavailable(str(answer)) if answer.may_pass else ProofRefused(str(answer))
            continue
        try:
            account = verify_account(state_root, address, answer.nodes)
        except InvalidProof as invalid:
            failed[address] = InvalidReply(
                f"A node sent a proof of {address} at block {block.number} that does not verify: {invalid}"
            )
            continue
        proofs.append(
            AccountProof(
                block=block,
                address=address,
                nodes=["0x" + node.hex() for node in answer.nodes],
                nonce=account.nonce,
                balance=account.balance,
                storage_root="0x" + account.storage_root.hex(),
                code_hash="0x" + account.code_hash.hex(),
            )
        )
    return proofs, failed
