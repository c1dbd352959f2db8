"""What the actions that cost money consist of: intents, from stored proofs and what nodes tell.

It sends nothing, and is apart from `apply` so that pages that give transactions out load nothing that sends.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from chains.packed import encode_block_hash
from proving.connections import Context
from proving.facts import Missing
from proving.paths.building import Leg
from proving.reconcile.decide import ExtendPath, PreparePath, Prove, ProveTime
from proving.registry import packing
from proving.registry.deployments import in_one_call
from proving.registry.packing import Intent
from queries.models import Block

# At the most, without calldata.
_TIME_GAS = 120_000


def of_proofs(context: Context, block: Block, action: Prove) -> Iterator[Intent]:
    """Return as many transactions as it takes. Where the first carries the header, the others rest on it."""
    header = _header(block) if action.with_header else None
    jump = action.jump if action.with_header else ()
    calls = action.start.calls if action.start and action.with_header else ()
    proofs = packing.intents(
        block,
        context.registry.contract,
        action.missing,
        header=header,
        jump=jump,
        beside=sum(len(data) for _, data in calls),
    )
    for first in itertools.islice(proofs, 1):
        to, data = in_one_call(context.registry.multicall, [*calls, (first.to, first.data)])
        yield replace(first, to=to, data=data, most_gas=None) if calls else first
    yield from proofs


def of_time(context: Context, block: Block, action: ProveTime) -> Intent:
    contract = context.registry.contract
    data = contract.prove_timestamp(_header(block), action.following.encode(), action.timestamp)
    return Intent(contract.address, data, action.queries, accumulates=[block], most_gas=_TIME_GAS)


def of_preparation(context: Context, action: PreparePath) -> Intent:
    to, data = in_one_call(context.registry.multicall, action.preparation.calls)
    return Intent(to, data, action.queries, extends=context.registry.row_id)


def of_leg(
    context: Context,
    block: Block,
    action: ExtendPath,
    leg: Leg,
    needing: Missing,
    *,
    beside: Mapping[int, Collection[int]],
) -> Iterator[Intent]:
    """Yield a part of a path.

    If it ends at the block itself, what can be proven at once goes with it, and the rest of what is `needing` it
    follows, resting on it. `beside` are ids of queries for which it stops at other blocks, by the blocks' numbers.
    """
    registry = context.registry.contract
    calls = list(leg.calls)
    proofs: Iterator[Intent] = iter(())
    if leg.arrives and action.target.number == block.number:
        proofs = packing.intents(
            block, registry, needing, header=action.target.encode(), jump=action.jump, beside=leg.size
        )
    elif action.jump:
        calls.append((registry.address, encode_block_hash(action.jump)))
    proof = next(proofs, None)
    calls += [(proof.to, proof.data)] if proof else []
    to, data = in_one_call(context.registry.multicall, calls)
    passed = [beside.get(header.number, ()) for header in leg.checkpoints[1:]]
    yield Intent(
        to,
        data,
        {pk for pks in [*needing.values(), *passed] for pk in pks},
        accumulates=proof.accumulates if proof else (),
        extends=context.registry.row_id,
    )
    yield from proofs


def _header(block: Block) -> bytes:
    assert block.header_rlp is not None, "INITIAL_STATE is completed"
    return bytes(block.header_rlp)
