"""Replacement of a registry that may be used: first its facts become final, then it is retired."""

from collections.abc import Callable

from django.db.models import Exists, Max, OuterRef, QuerySet
from django.db.models.functions import Now
from django.utils import timezone
from eth_utils.address import to_checksum_address

from chains.chains_file import Chain
from chains.nodes import questions
from chains.nodes.node_errors import ChainError
from chains.nodes.rpc import RpcClient
from config.configured_chains import get_chains, get_rpc
from config.database import statements
from config.database.statements import chunks
from proving.models import WATCHED_STATES, FactsRegistry, Transaction, TransactionState
from proving.reconcile import turn
from proving.registries import deployments
from proving.registries.creations import DeploymentError
from proving.sending import signing, transaction_monitor
from proving.working import heads
from proving.working.lanes import HeldLane
from queries import batch_states
from queries.models import ADMITTED_STATUSES, Batch, BatchStatus, Block, Query, StepKind

# Seconds for which the command waits if the operator names no other time, and the maximum.
WAIT_SECONDS, MAX_WAIT_SECONDS = 3600, 24 * 3600
# Maximum blocks of which the facts are read together.
_BLOCKS = 50


def await_final(lane: HeldLane, row: FactsRegistry, seconds: float, tell: Callable[[str], None]) -> None:
    """Wait until no reorg can take a fact from the registry. Holding the connection's lane stops proofs to it.

    `tell` gets a sentence whenever the reason for the wait changes. Raises `LaneLost`, and `DeploymentError` if the
    time is over or the registry may not be used any more.
    """
    chain = get_chains().chain(row.destination_chain_id)
    told = ""
    for _ in transaction_monitor.monitor_for(chain, seconds, pause=heads.poll_seconds(chain)):
        lane.keep()
        try:
            why = _why_not_final(lane, row)
        except deployments.Unusable as unusable:
            raise DeploymentError(unusable.reason.for_operators) from None
        except ChainError as error:
            why = error.for_operators
        if not why:
            return
        if why != told:
            tell(why)
        told = why
    raise DeploymentError(
        f"After {seconds:g} s the facts of the registry at {row.address} are not final, so it was not replaced, and "
        f"the service uses it again. {told} Run the command again: the new contracts are there."
    )


def _why_not_final(lane: HeldLane, row: FactsRegistry) -> str:
    """Return a sentence if the registry's facts aren't final yet. Empty: they are."""
    chain, rpc = get_chains().chain(row.destination_chain_id), get_rpc(row.destination_chain_id)
    addresses = list(filter(None, (to_checksum_address(row.address), row.multicall)))
    sent = Transaction.objects.filter(signer__chain_id=chain.id, to__in=addresses, state__in=WATCHED_STATES)
    # Transactions of a key that chains.toml no longer has may never be mined.
    signers = signing.senders(chain)
    opened = sent.filter(state=TransactionState.PENDING, signer__address__in=signers).order_by("nonce")
    if first := opened.first():
        return f"Open transactions to the old registry: {opened.count()}. {first.waits_for.for_operators}"
    checked = _blocks(row).filter(due_at__isnull=False, checked_number__isnull=False)

    def why_last_is_not_final() -> str:
        last = max(
            sent.aggregate(last=Max("block_number"))["last"] or 0,
            checked.aggregate(last=Max("checked_number"))["last"] or 0,
        )
        if last <= (final := _final(chain, rpc, last)):
            return ""
        return f"The old registry's last facts are in block {last} of {chain.label}. The newest final block is {final}."

    if why := why_last_is_not_final():
        return why
    for some in chunks(list(checked), _BLOCKS):
        if reason := next(filter(None, turn.settle(lane, some)), None):
            return reason.for_operators
    # The last look may have found facts that a reorg has moved up.
    return why_last_is_not_final()


def _final(chain: Chain, rpc: RpcClient, needed: int) -> int:
    """Return the newest block that each answering node of the chain reports as final, if block `needed` is final.

    A node that is asked first may report any block. Raises `NodeUnavailable`, `RpcRefused`.
    """
    final = heads.recent(chain, rpc).final
    if needed > final:
        return final
    told = rpc.answers_of_each(questions.header("finalized")).values()
    return min([final, *(header.number for header in told if header)])


def retire(lane: HeldLane, row: FactsRegistry) -> None:
    """Retire a registry in the caller's database transaction. Its row stays, and batches that are DONE stay DONE.

    The facts of open batches are proven again to the next registry. Raises `LaneLost`.
    """
    lane.fence()
    blocks = _blocks(row)
    statements.lock(blocks)
    admitted = Query.objects.filter(block__in=blocks, batch__status__in=ADMITTED_STATUSES)
    begun = admitted.exclude(step__in=[StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE])
    batch_states.lock_batches(admitted.values_list("pk", flat=True))
    # A batch that was DONE meanwhile, by a clock that may be ahead, is DONE before the registry is replaced.
    proven = Query.objects.filter(batch=OuterRef("pk"), block__in=blocks)
    done = Batch.objects.filter(Exists(proven), status=BatchStatus.DONE)
    last = done.order_by("-finished_at").values_list("finished_at", flat=True).first()
    row.replaced_at, row.due_at = max(filter(None, (timezone.now(), last))), None
    row.replaced_because = row.refused or deployments.why_replaceable(row)
    row.save(update_fields=["replaced_at", "replaced_because", "due_at"])
    blocks.update(is_checkpoint=False, checked_number=None, checked_hash="")
    batch_states.reopen(
        list(begun.values_list("pk", flat=True)),
        StepKind.BLOCKHASH_AVAILABLE,
        reason=f"The facts registry at {row.address} is replaced. The service proves everything again to the new "
        f"registry.",
    )
    blocks.filter(Exists(admitted.filter(block=OuterRef("pk")))).update(due_at=Now())


def _blocks(row: FactsRegistry) -> QuerySet[Block]:
    return Block.objects.filter(destination_chain_id=row.destination_chain_id, source_chain_id=row.source_chain_id)
