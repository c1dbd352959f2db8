"""What a draft would cost and take, in what people ask for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.utils import timezone

from accounts.models import User
from config.chain_names import ChainName, chain_name
from explorer.formatting.amounts import rounded
from explorer.formatting.sentences import in_words
from proving.batch_estimate import BatchEstimate, Reason
from proving.budget import allowance
from proving.budget.allowance import DailyAllowance
from proving.gas_model.proof_gas import Part
from queries.batch_request import BatchRequest

_FACTS = (Part.HEADER_FIELDS, Part.ACCOUNTS, Part.SLOTS, Part.TIMES)


@dataclass(frozen=True)
class MeantBlock:
    """The block that a row means, as its chain was a moment ago."""

    number: int
    back: int  # blocks before the newest; less than 0: it is still to come


@dataclass(frozen=True)
class ShownEstimate:
    destination: ChainName
    is_self_funded: bool
    wei: int  # expected
    most_wei: int
    gas: int
    gas_price: str  # gwei
    in_registry: int  # of `parts`
    parts: int  # accounts, slots, header fields and times
    paths: int  # to old blocks
    jumps: int  # of these, by the beacon chain
    jump_origins: Sequence[int]  # numbers of the blocks where they begin
    transactions: int
    seconds: int
    reasons: Sequence[Reason]
    waits: Sequence[str]
    blocks: Mapping[tuple[str, str], MeantBlock]
    """By the id of the chain, and by what selects the block, both as in requests."""
    allowances: Sequence[DailyAllowance]  # of which the batch takes
    made_at: datetime


def shown(request: BatchRequest, found: BatchEstimate, user: User) -> ShownEstimate:
    parts = [(part, one) for source in found.sources for part, one in source.parts.items()]
    facts = [one for part, one in parts if part in _FACTS]
    cost = found.cost
    currency = found.destination.native_currency
    return ShownEstimate(
        destination=chain_name(found.destination.id),
        is_self_funded=request.is_self_funded,
        wei=cost.wei.expected,
        most_wei=cost.wei.bound,
        gas=cost.gas.expected,
        gas_price=rounded(found.gas_price, decimals=9),
        in_registry=sum(one.in_registry for one in facts),
        parts=sum(one.count for one in facts),
        paths=sum(one.count for part, one in parts if part == Part.PATHS),
        jumps=sum(one.jumps for one in found.sources),
        jump_origins=[one.jump_origin for one in found.sources if one.jump_origin is not None],
        transactions=found.transactions,
        seconds=found.seconds_to_done,
        reasons=[replace(one, sentence=in_words(one.sentence, currency)) for one in found.reasons],
        waits=list(dict.fromkeys(in_words(wait, currency) for source in found.sources for wait in source.waits)),
        blocks=dict(_blocks(found)),
        allowances=() if request.is_self_funded else list(allowance.of_user_on(user, found.destination)),
        made_at=timezone.now(),
    )


def _blocks(found: BatchEstimate) -> Iterator[tuple[tuple[str, str], MeantBlock]]:
    for of_source in found.sources:
        for selector, number in of_source.blocks.items():
            yield (str(of_source.source), selector.text), MeantBlock(number, of_source.head - number)


def names(request: BatchRequest) -> Mapping[str, str]:
    """Return the addresses of the names that the request asks for."""
    return {part.name: part.address for part in request.parts() if part.name}
