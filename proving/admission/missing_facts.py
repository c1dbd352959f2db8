"""The facts that the registry lacks, and the paths to their blocks: admission's second step."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from proving import facts
from proving.admission.answers import SelectedBlocks, SourceAnswers
from proving.facts import HeaderFact
from proving.packing.gas import Route, UnprovenBlock
from proving.paths import planning
from proving.paths.planning import StatesRefused, TooFar
from proving.reading.block_contents import BlockSize
from proving.sources import NotYet
from queries.waits import WaitReason, wait


def of_blocks(answers: SourceAnswers, selected: SelectedBlocks) -> list[UnprovenBlock]:
    """Return the blocks that exist, each with the facts that the registry lacks. Raises `ChainError`."""
    missing: list[UnprovenBlock] = []
    for number, of_block in selected.existing.items():
        if error := answers.errors.get(number):
            raise error
        missing.append(
            UnprovenBlock(
                number,
                [fact for fact in of_block if (number, fact) not in answers.held],
                is_known=number in answers.accumulated,
                header=answers.headers[number],
                size=selected.sizes.get(number, BlockSize()),
                roots=[fact.field for at, fact in answers.held if at == number and isinstance(fact, HeaderFact)],
            )
        )
    return missing


def lacking_properties(answers: SourceAnswers, selected: SelectedBlocks) -> list[WaitReason]:
    """Return a wait for each block whose header lacks a requested property. Forks only add properties."""
    reasons: list[WaitReason] = []
    blocks = [(answers.complete(number), of_block) for number, of_block in selected.existing.items()]
    for header, of_block in [*blocks, *((answers.head, of_block) for of_block in selected.coming)]:
        fields = [fact.field for fact in of_block if isinstance(fact, HeaderFact)]
        if header is not None and (lacking := facts.lacking(header, fields)):
            reasons.append(facts.why_lacking(answers.source.id, header, lacking))
    return reasons


def route_to(
    answers: SourceAnswers, selected: SelectedBlocks, missing: Sequence[UnprovenBlock], deadline: datetime
) -> Route | TooFar | NotYet | StatesRefused:
    """Find the paths to the blocks whose hashes the registry can't take now. Raises `NodeUnavailable`, `RpcRefused`."""
    needed = sorted({number for block in missing if block.needs_header for number in block.hashes}, reverse=True)
    if error := next((answers.errors[number] for number in needed if number in answers.errors), None):
        raise error
    targets = [answers.headers[number] for number in needed if number not in answers.vouched]
    try:
        route = planning.route_to(answers.connection, targets, deadline=deadline)
        if selected.coming and isinstance(route, Route):
            # A future block is confirmed no sooner than the head, and by the same history.
            of_head = planning.route_to(answers.connection, [answers.head], deadline=deadline)
            route = route if isinstance(of_head, Route) else of_head
    except StatesRefused as refused:
        return refused
    if isinstance(route, NotYet):
        return replace(route, reason=wait("after_deadline", reason=route.reason, deadline=deadline.timestamp()))
    return route
