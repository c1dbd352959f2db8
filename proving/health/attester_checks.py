"""Asks the attesters of a connection, as proving will: who signs what our own nodes say, and why others don't.

Workers do so from time to time, also while there is no work, so that pages can tell without asking anybody.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

from django.db import DatabaseError
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from chains.attestation import Answer, Domain, Refusal, ask
from chains.chains_file import Attester, Connection
from chains.exchange_metrics import answer_label
from chains.header import Header
from chains.rpc import ChainError, RpcClient, RpcRefused
from config.configured_chains import get_chains, get_rpc
from proving.health.findings import Problem
from proving.models import AttesterWatch, FactsRegistry

# Below the newest final block, in blocks: an attester whose nodes are an epoch behind is no silent one.
_BEHIND = 32
# Where nodes don't tell which block is final.
_FINAL_DEPTH = 64
# Before there is a contract, for which attesters sign: who signs for none signs for any.
_NO_CONTRACT = "0x" + "0" * 40
# Between two rounds of questions. Each may leave a row with every attester, which keeps what it has signed.
_PAUSE = timedelta(minutes=2)
SIGNED, CONTRADICTS = "signed", "contradicts"


@dataclass(frozen=True)
class Said:
    """One attester's answer about a block."""

    address: str
    """EIP-55."""
    answer: str
    """`signed`, `contradicts` (it has signed another hash than our nodes have), or the code of a refusal."""
    sentence: str

    @classmethod
    def of(cls, attester: Attester, answer: Answer, header: Header) -> Self:
        if isinstance(answer, Refusal):
            return cls(attester.address, answer_label(answer.code), answer.sentence)
        if answer.block_hash == header.hash:
            return cls(attester.address, SIGNED, f"{attester.host} signs.")
        sentence = (
            f"{attester.host} contradicts our nodes: it signs 0x{answer.block_hash.hex()}, and they have "
            f"0x{header.hash.hex()}."
        )
        return cls(attester.address, CONTRADICTS, sentence)


@dataclass(frozen=True)
class Asked:
    said: Sequence[str]
    """Lines for people."""
    problems: Sequence[Problem] = ()


def examine(connection: Connection) -> Asked:
    """Ask the attesters of an attested connection, and tell whether enough of them agree with our nodes."""
    source = get_rpc(connection.source_id)
    try:
        block, said = _ask(connection)
    except ChainError as error:
        # That is told of the chain already.
        return Asked([f"The attesters of {source.chain.label} are not asked: {error.for_operators}"])
    threshold = connection.threshold or 0
    agreeing = sum(one.answer == SIGNED for one in said)
    first = f"Of the attesters of {source.chain.label}, {agreeing} sign block {block}, and {threshold} must:"
    lines = [first, *(f"  {one.address}: {one.sentence}" for one in said)]
    if agreeing >= threshold:
        return Asked(lines)
    sentence = (
        f"Of {len(said)} attesters of {source.chain.label}, {agreeing} sign what our nodes say of block "
        f"{block}, and {threshold} must: nothing of it can be proven on chain {connection.destination_id}."
    )
    return Asked(lines, [Problem("too_few_attesters", sentence)])


def watch() -> None:
    """Ask the attesters of each connection whose last round is long ago, and note what they say: a worker's duty.

    Who is killed meanwhile leaves it to the next round.
    """
    for connection in get_chains().connections:
        if connection.attesters and _take_turn(connection):
            _note(connection)


def _take_turn(connection: Connection) -> bool:
    """Take the turn if it is due, and return whether this worker has it: several may come at once.

    A turn in the future was taken by a clock ahead.
    """
    ends = {"source_chain_id": connection.source_id, "destination_chain_id": connection.destination_id}
    rows = _row(connection)
    if not rows.exists():
        AttesterWatch.objects.bulk_create([AttesterWatch(**ends)], ignore_conflicts=True)
    is_due = Q(asked_at=None) | Q(asked_at__lt=Now() - _PAUSE) | Q(asked_at__gt=Now() + _PAUSE)
    return bool(rows.filter(is_due).update(asked_at=Now()))


def _note(connection: Connection) -> None:
    try:
        block, said = _ask(connection)
    except ChainError:
        # That is told of the chain already. What was known stays, with its time.
        return
    _store(_row(connection).get(), block, said)


def note_round(
    connection: Connection, header: Header, attesters: Sequence[Attester], answers: Sequence[Answer]
) -> None:
    """Note what attesters answered about a batch's block: the page of chains says the same as that of the batch.

    A block below that of the last round says less: not every attester must know it.
    """
    row = _row(connection).filter(block__lte=header.number).first()
    if row is not None:
        pairs = zip(attesters, answers, strict=True)
        _store(row, header.number, [Said.of(attester, answer, header) for attester, answer in pairs])


def _row(connection: Connection) -> "QuerySet[AttesterWatch]":
    return AttesterWatch.objects.filter(
        source_chain_id=connection.source_id, destination_chain_id=connection.destination_id
    )


def _store(row: AttesterWatch, block: int, said: Sequence[Said]) -> None:
    """Store a round of answers. Of an attester that was not asked, the earlier answer stays."""
    before = {one["address"]: one for one in row.answers}
    now = timezone.now().isoformat()
    new = {
        one.address: {
            "address": one.address,
            "answer": one.answer,
            "sentence": one.sentence,
            "since": _since(before.get(one.address), one, now),
        }
        for one in said
    }
    answers = list((before | new).values())
    AttesterWatch.objects.filter(pk=row.pk).update(block=block, answers=answers, answered_at=Now())


def _since(before: dict[str, Any] | None, said: Said, now: str) -> str:
    """Return since when it has answered so."""
    return before["since"] if before and before["answer"] == said.answer else now


def _ask(connection: Connection) -> tuple[int, list[Said]]:
    """Ask the attesters. Returns the block that they were asked about, and what each said.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    header = _old_enough(get_rpc(connection.source_id))
    domain = Domain(connection.destination_id, _contract(connection) or _NO_CONTRACT)
    answers = ask(connection.attesters, domain, connection.source_id, header.number)
    pairs = zip(connection.attesters, answers, strict=True)
    return header.number, [Said.of(attester, answer, header) for attester, answer in pairs]


def _contract(connection: Connection) -> str:
    rows = FactsRegistry.in_use.filter(
        source_chain_id=connection.source_id, destination_chain_id=connection.destination_id
    )
    try:
        return rows.values_list("block_hash_source", flat=True).first() or ""
    except DatabaseError:
        # Attesters are asked before anything is set up.
        return ""


def _old_enough(rpc: RpcClient) -> Header:
    try:
        final = rpc.header("finalized")
    except RpcRefused:
        final = None
    newest = rpc.head().number - _FINAL_DEPTH if final is None else final.number
    return rpc.known_header(max(0, newest - _BEHIND))
