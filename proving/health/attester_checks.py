"""Checks of a connection's attesters: which ones sign the hash that the service's nodes report, and why others don't.

Workers check them regularly, even without work, so that pages make no requests. No decision depends on the results.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db.models.functions import Now
from django.utils import timezone

from chains.attestation import Answer, Domain, Refusal, answer_label, ask
from chains.chains_file import Attester, Connection
from chains.contract_artifacts import NO_CONTRACT
from chains.nodes.node_errors import ChainError, RpcRefused
from chains.nodes.rpc import RpcClient
from chains.tries.header import Header
from config.configured_chains import get_chains, get_rpc
from proving.health.current_problems import SeenProblem
from proving.health.problem_kinds import ProblemKind
from proving.models import AttesterWatch, FactsRegistry
from proving.working.lanes import HeldLane

# Distance of the checked block below the newest final block. It allows attesters to be an epoch behind.
_BEHIND = 32
# Blocks until finality, if nodes report no final block.
_FINAL_DEPTH = 64
SIGNED = "signed"
_CONTRADICTING = {"contradicts", "conflict"}


def examine(connection: Connection, contract: str, say: Callable[[str], object]) -> list[SeenProblem]:
    """Ask the attesters and print a line about each. Return a problem if too few agree with the service's nodes."""
    label, threshold = get_rpc(connection.source_id).chain.label, connection.threshold or 0
    try:
        check = _ask(connection, contract)
    except ChainError as error:
        # The checks of the chain itself report this error.
        say(f"  The attesters of {label} are not asked: {error.for_operators}")
        return []
    agreeing = sum(answer["answer"] == SIGNED for answer in check.answers)
    say(f"  Of the attesters of {label}, {agreeing} sign block {check.block}, and {threshold} must:")
    for answer in check.answers:
        say(f"    {answer['address']}: {answer['sentence']}")
    if agreeing >= threshold:
        return []
    sentence = (
        f"Of {len(check.answers)} attesters of {label}, {agreeing} confirm our nodes' hash of block {check.block}, and "
        f"{threshold} must: nothing about it can be proven on chain {connection.destination_id}."
    )
    return [SeenProblem(ProblemKind.TOO_FEW_ATTESTERS, sentence)]


def watch(lane: HeldLane) -> None:
    """Ask the attesters of each connection if the last check is too old, and store their answers.

    A worker calls this.
    """
    for connection in get_chains().connections:
        if connection.attesters:
            _watch(lane, connection)


def _watch(lane: HeldLane, connection: Connection) -> None:
    ends: dict[str, Any] = {"source_chain_id": connection.source_id, "destination_chain_id": connection.destination_id}
    row, _ = AttesterWatch.objects.get_or_create(**ends)
    this = AttesterWatch.objects.filter(pk=row.pk)
    # Only one worker asks. A time in the future was stored by a clock that was ahead.
    recently = (Now() - AttesterWatch.PERIOD, Now() + AttesterWatch.PERIOD)
    if not this.exclude(asked_at__range=recently).update(asked_at=Now()):
        return
    contract = FactsRegistry.in_use.filter(**ends).values_list("block_hash_source", flat=True).first()
    try:
        check = _ask(connection, contract or NO_CONTRACT)
    except ChainError:
        # The checks of the chain itself report this error. The earlier answers stay, with their time.
        return
    now = timezone.now().isoformat()
    before = {(answer["address"], answer["answer"]): answer["since"] for answer in row.answers}
    dated = [answer | {"since": before.get((answer["address"], answer["answer"]), now)} for answer in check.answers]
    lane.write(partial(this.update, block=check.block, answers=dated, answered_at=Now()))
    if any(answer["answer"] in _CONTRADICTING for answer in check.answers):
        lane.write(partial(FactsRegistry.in_use.filter(**ends).update, risk_seen_at=Now()))


@dataclass(frozen=True)
class _AttesterCheck:
    block: int
    answers: Sequence[dict[str, str]]
    """One for each attester, in the order of chains.toml. The values of `answer` are those of `answer_label`."""


def _ask(connection: Connection, contract: str) -> _AttesterCheck:
    """Ask the attesters for this contract. Before there is one, any address may be used.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    header = _old_enough(get_rpc(connection.source_id))
    domain = Domain(connection.destination_id, contract)
    answers = ask(connection.attesters, domain, connection.source_id, header.number)
    return _AttesterCheck(
        header.number,
        [
            {
                "address": attester.address,
                "answer": answer_label(answer, header.hash),
                "sentence": _sentence(attester, answer, header),
            }
            for attester, answer in zip(connection.attesters, answers, strict=True)
        ],
    )


def _sentence(attester: Attester, answer: Answer, header: Header) -> str:
    if isinstance(answer, Refusal):
        return answer.sentence
    if answer.block_hash == header.hash:
        return f"{attester.host} signs."
    return (
        f"{attester.host} contradicts our nodes: it signs 0x{answer.block_hash.hex()}, and they have "
        f"0x{header.hash.hex()}."
    )


def _old_enough(rpc: RpcClient) -> Header:
    try:
        final = rpc.header("finalized")
    except RpcRefused:
        final = None
    newest = rpc.head().number - _FINAL_DEPTH if final is None else final.number
    return rpc.known_header(max(0, newest - _BEHIND))
