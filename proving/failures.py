"""Failed transactions: why each failed, and how often the same was sent in vain.

A failure counts for what was sent, whoever asked for it: for facts in a registry, or for a connection's path. A try
after two failures gets a higher gas limit, and there are few tries. A reorganisation of the destination is no try
(`counted`).
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self, TypeVar

from django.conf import settings
from django.db.models import F, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce

from chains.nodes import questions
from chains.nodes.node_errors import ChainError, Reverted, RpcRefused
from chains.nodes.rpc import RpcClient
from proving import facts
from proving.facts import Fact, proves_facts
from proving.models import FailureCause, SignedTransaction, Transaction
from proving.registries.deployments import OUTDATED, Deployment, revert_reason
from queries import clock
from queries.models import Block
from queries.waits import WaitReason, wait

# --- Why a transaction failed -----------------------------------------------------------------------------------------

# The codes of the reasons.
CODES = {"transaction_out_of_gas", "transaction_reverted"}
# A transaction ran out of gas if it would pass with so many times its gas limit.
_MORE_GAS = 4
# Without a state to try that on: if it used more than this part of its limit. A call keeps back a 64th of its gas
# (EIP-150), and there are calls within calls.
USED = 15 / 16


@dataclass(frozen=True)
class Failure:
    cause: FailureCause
    reason: WaitReason


def why(
    rpc: RpcClient, tx: Transaction, *, gas_used: int, gas_limit: int, block: int, was_reorganised: bool = False
) -> Failure:
    """Find out why a transaction failed in a block.

    The call is repeated after the block before, and after the block itself, which may be the first one of a fork.
    `was_reorganised`: the monitor has seen a reorganisation of the destination since the transaction was simulated.
    """
    sender, to, data, before = tx.signer.address, tx.to or None, bytes(tx.data), block - 1
    limits = (gas_limit, _MORE_GAS * gas_limit)
    runs = [questions.run(sender, to, data, at, gas=gas) for at in (before, block) for gas in limits]
    answers = rpc.ask(runs) if tx.pruned_at is None else []
    repeated = list(zip(answers[::2], answers[1::2], strict=True))
    is_short = any(isinstance(same, RpcRefused) and isinstance(more, bytes) for same, more in repeated)
    reverts = [more for _, more in repeated if isinstance(more, Reverted)]
    cause = FailureCause.REVERTED
    if is_short and gas_used > gas_limit / 2:
        cause = FailureCause.OUT_OF_GAS
    elif was_reorganised and any(revert_reason(more.data).name in OUTDATED for more in reverts):
        cause = FailureCause.OUTDATED
    elif not reverts and not any(isinstance(more, bytes) for _, more in repeated) and gas_used > USED * gas_limit:
        cause = FailureCause.OUT_OF_GAS
    if cause != FailureCause.OUT_OF_GAS:
        return Failure(cause, wait("transaction_reverted"))
    estimate = questions.gas_estimate(sender, to, data, before)
    told: dict[str, int | ChainError] = {**rpc.answers_of_each(estimate)}
    told = told or dict(zip(rpc.chain.hosts[:1], rpc.ask([estimate]), strict=True))
    estimates = " and ".join(f"{gas:,} ({host})" for host, gas in told.items() if isinstance(gas, int)) or "nothing"
    return Failure(cause, wait("transaction_out_of_gas", gas=gas_used, limit=gas_limit, estimates=estimates))


# --- How often it failed ----------------------------------------------------------------------------------------------

# Maximum tries, and maximum reverts that nothing explains.
_MOST_TRIES, _MOST_REVERTS = 4, 2
# Maximum reverts that reorganisations explain. A deep reorganisation makes about three transactions for a fact revert:
# those of the header, of the time, and of the fact itself.
_MOST_OUTDATED = 16
# After so many tries, the gas limit must be higher than the highest that failed by this factor.
_ALIKE, _HIGHER = 2, 1.5
# Maximum failures of a path that are read.
_OF_PATH = 20


@dataclass(frozen=True)
class FailedTransaction:
    created_at: datetime
    """Transactions that were sent together have the same time."""
    cause: FailureCause
    gas_limit: int
    reason: WaitReason | None


@dataclass(frozen=True)
class Tries:
    """How often the same was sent in vain."""

    count: int = 0
    reverts: int = 0
    """The tries that no lack of gas explains, and no reorganisation."""
    highest: int = 0
    """The highest gas limit that was too low."""
    last: WaitReason | None = None

    @classmethod
    def of(cls, failed: Iterable[tuple[FailedTransaction, bool]]) -> Self:
        """Return the tries of transactions in the order of their creation, each with whether it was sent alone.

        Those that were sent together are one try. A shared transaction's gas limit says nothing about its parts.
        Earlier versions repeated tries without a higher limit. These count as two.
        """
        count = reverts = highest = 0
        last: WaitReason | None = None
        for _, together in itertools.groupby(failed, key=lambda each: each[0].created_at):
            of_try = list(together)
            causes = {each.cause for each, _ in of_try}
            short = [each for each, is_alone in of_try if is_alone and each.cause == FailureCause.OUT_OF_GAS]
            limit = max((each.gas_limit for each in short), default=0)
            is_repeated = len(causes) == 1 and 0 < limit < _HIGHER * highest
            count += count < _ALIKE or not is_repeated
            reverts += FailureCause.REVERTED in causes
            highest, last = max(highest, limit), of_try[-1][0].reason
        return cls(count, reverts, highest, last)

    @property
    def is_over(self) -> bool:
        """Return whether the same is not sent again."""
        return self.count >= _MOST_TRIES or self.reverts >= _MOST_REVERTS

    @property
    def least_limit(self) -> int:
        """Return the least gas limit of the next try. 0: any."""
        return math.ceil(_HIGHER * self.highest) if self.count >= _ALIKE else 0


NO_TRIES = Tries()

Key = TypeVar("Key")


def counted(failed: Mapping[Key, FailedTransaction]) -> list[Key]:
    """Return the keys of the failures that count as tries.

    After a reorganisation of the destination, the chain may mine the dropped transactions again, and they revert.
    Nobody can prevent that, and the next transactions build on the new blocks. So a revert for an unknown block doesn't
    count if the monitor has seen the transaction, or another one of ours on the chain, leave its block (`OUTDATED`).

    This rule has a limit. A node of the source chain can't make transactions leave their blocks. The destination's
    sequencer can, and a node of the destination can pretend it. Therefore all failures count if the outdated ones are
    many. Transactions that were sent together count once.
    """
    outdated = {key: each.created_at for key, each in failed.items() if each.cause == FailureCause.OUTDATED}
    is_credible = len({*outdated.values()}) <= _MOST_OUTDATED
    return [key for key in failed if not (is_credible and key in outdated)]


@dataclass(frozen=True)
class FailedFacts:
    """A failed transaction, and the facts of a block that each of its queries asked for."""

    transaction: FailedTransaction
    asked: Sequence[frozenset[Fact]]
    is_of_block: bool
    """True if all its queries are about the block."""

    def is_about(self, fact: Fact) -> bool:
        return any(fact in asked for asked in self.asked)

    def is_alone_about(self, facts: Collection[Fact]) -> bool:
        """Return whether it was sent for these facts alone."""
        return self.is_of_block and not any(asked.isdisjoint(facts) for asked in self.asked)


def of_facts(registry: Deployment, blocks: Sequence[Block]) -> dict[int, list[FailedFacts]]:
    """Return the failed transactions for facts of these blocks in the registry, by block id, the oldest first."""
    links_of = Transaction.queries.through.objects
    links = links_of.filter(proves_facts("query__block", "transaction"), query__block__in=blocks)
    sent = links.filter(transaction__succeeded=False, transaction__to__in=registry.addresses)
    # A cancelled transaction was no longer needed, so it doesn't count as a failure.
    needed = sent.filter(~SignedTransaction.mined_cancellations("transaction"))
    failed = _recent(Transaction.objects.filter(pk__in=set(needed.values_list("transaction", flat=True))))
    asked: dict[int, dict[int | None, list[frozenset[Fact]]]] = {pk: defaultdict(list) for pk in failed}
    for link in links_of.filter(transaction__in=failed).select_related("query") if failed else ():
        asked[link.transaction_id][link.query.block_id].append(frozenset(facts.of(link.query)))
    by_block: dict[int, list[FailedFacts]] = defaultdict(list)
    for block, (pk, asked_by_block) in itertools.product(blocks, asked.items()):
        if of_block := asked_by_block.get(block.pk):
            by_block[block.pk].append(FailedFacts(failed[pk], of_block, len(asked_by_block) == 1))
    return by_block


def of_path(registry: Deployment) -> Tries:
    """Return the tries of the connection's path since one succeeded."""
    needed = Transaction.objects.filter(~SignedTransaction.mined_cancellations(), extends=registry.row_id)
    newest = needed.exclude(succeeded=None).order_by("-pk").values_list("pk", "succeeded")[:_OF_PATH]
    failed = [pk for pk, _ in itertools.takewhile(lambda row: not row[1], newest)]
    recent = _recent(Transaction.objects.filter(pk__in=failed)) if failed else {}
    return Tries.of((recent[pk], True) for pk in counted(recent))


def _recent(transactions: QuerySet[Transaction]) -> dict[int, FailedTransaction]:
    """Read failed transactions, the oldest first. Failures as old as a batch may become are left out.

    So what a rejected batch asked for can be asked for again.
    """
    mined = SignedTransaction.objects.filter(transaction=OuterRef("pk"), hash=OuterRef("hash"))
    with_limit = transactions.annotate(signed=Coalesce(Subquery(mined.values("gas_limit")[:1]), F("gas_limit")))
    columns = ("pk", "created_at", "spent_at", "failure", "error", "gas_used", "signed")
    rows = list(with_limit.order_by("pk").values_list(*columns))
    since = clock.earliest() - timedelta(seconds=settings.BATCH_DEADLINE_SECONDS) if rows else None
    return {
        pk: FailedTransaction(created_at, FailureCause(failure or _presumed(gas_used, limit)), limit, error)
        for pk, created_at, spent_at, failure, error, gas_used, limit in rows
        if since and spent_at > since
    }


def _presumed(gas_used: int, gas_limit: int) -> FailureCause:
    """Return the cause of a failure that an earlier version has stored."""
    return FailureCause.OUT_OF_GAS if gas_used > gas_limit / 2 else FailureCause.REVERTED
