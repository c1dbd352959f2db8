"""Batches, their queries and steps, and the blocks that they are about.

`queries.submission` makes these rows, and `queries.progress` writes how far they are. Times are in UTC, and tell when
something happened in this service.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Min
from django.dispatch import Signal
from django.utils import timezone
from ulid import ULID

from accounts.models import ApiKey
from chains.encoding import hex_data
from database.due_rows import DueRow
from queries.columns import AccountField, HeaderField, Uint256Field
from queries.waits import Actor, WaitField, WaitReason, uncoded, wait

# Models are loaded at each start, and would load RLP and hashing with it.
if TYPE_CHECKING:
    from chains.header import Header


stored = Signal()
"""Sent with the `batch` when it is committed. A receiver must neither fail nor take time: a client waits."""


def new_batch_id() -> str:
    return str(ULID())


class BatchStatus(models.TextChoices):
    RECEIVED = "RECEIVED"
    ACCEPTED = "ACCEPTED"
    IN_PROGRESS = "IN_PROGRESS"
    DONE = "DONE"
    REJECTED = "REJECTED"


# A batch with one of these can still become DONE.
OPEN_STATUSES = (BatchStatus.RECEIVED, BatchStatus.ACCEPTED, BatchStatus.IN_PROGRESS)
ADMITTED_STATUSES = (BatchStatus.ACCEPTED, BatchStatus.IN_PROGRESS)
"""Statuses of open batches that passed their check against the chains."""


class Sender(models.TextChoices):
    """The sender of a batch's transactions, who pays for them."""

    OPERATOR = "operator"
    SELF = "self"  # the submitter, or anybody else: not this service


class StepKind(models.TextChoices):
    """The steps of a query, in their order (docs/specification.md, "Steps of a query")."""

    INITIAL_STATE = "INITIAL_STATE"
    BLOCKHASH_AVAILABLE = "BLOCKHASH_AVAILABLE"
    HEADER_ACCUMULATED = "HEADER_ACCUMULATED"
    ACCOUNT_ACCUMULATED = "ACCOUNT_ACCUMULATED"


HEADER_STEPS = (StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE, StepKind.HEADER_ACCUMULATED)
"""Steps of a query about a header, which is proven with its accumulation."""

PROVABLE_STEPS = (StepKind.BLOCKHASH_AVAILABLE, StepKind.HEADER_ACCUMULATED, StepKind.ACCOUNT_ACCUMULATED)
"""Steps of queries whose header and proofs are stored: the rest is up to transactions."""


class BlockTag(models.TextChoices):
    """Blocks that a request may name as JSON-RPC does."""

    LATEST = "latest"
    FINALIZED = "finalized"


class StepStatus(models.TextChoices):
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"


@dataclass(frozen=True)
class Wait:
    """A reason why a batch waits. If it fails: since when, and when the next attempt is."""

    reason: WaitReason
    failing_since: datetime | None = None
    next_try_at: datetime | None = None
    source_chain_ids: tuple[int, ...] = ()  # of the blocks that wait; empty if no source chain is concerned

    @property
    def sentence(self) -> str:
        return str(self.reason)

    def __str__(self) -> str:
        if self.failing_since is None:
            return self.sentence
        now = timezone.now()
        failing = max(0, round((now - self.failing_since).total_seconds()))
        pause = max(0, round((self.next_try_at - now).total_seconds())) if self.next_try_at else 0
        soon = f"in {pause} s" if pause else "now"
        return f"{self.sentence} This has lasted for {failing} s; the next attempt is {soon}."


# A condition on a batch or a block. A version without codes has left null in `wait`.
SAYS_WHAT_IT_WAITS_FOR = ~models.Q(waiting_for="") | models.Q(wait__isnull=False)


class Batch(DueRow):
    """One submitted request. It is due until it was checked against the chains, and all its times have blocks."""

    id = models.CharField(primary_key=True, max_length=26, default=new_batch_id, editable=False)  # internalId, a ULID
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="batches")
    api_key = models.ForeignKey(ApiKey, models.PROTECT, related_name="batches")
    destination_chain_id = models.PositiveBigIntegerField()
    # The operator never sends for "self": no transaction of the operator names a query of such a batch.
    sender = models.CharField(
        max_length=8, choices=Sender.choices, default=Sender.OPERATOR, db_default=Sender.OPERATOR.value
    )
    # Wei of the destination's native currency: the most that the batch may cost the operator. 0 for "self".
    fee = Uint256Field()
    # True: the request says `auto`, and the fee is the estimate of when it was accepted.
    fee_is_estimate = models.BooleanField(default=False, db_default=False)
    request = models.TextField()  # the submitted JSON
    size = models.PositiveIntegerField(default=0)  # accounts, slots and headers, as MAX_QUERIES_PER_BATCH counts them
    block_count = models.PositiveIntegerField(default=0)  # blocks that it names, by numbers or times

    status = models.CharField(max_length=16, choices=BatchStatus.choices, default=BatchStatus.RECEIVED)
    wait = WaitField(null=True, blank=True)  # the reason, while it is due
    # A sentence that a version without `wait` has stored.
    waiting_for = models.TextField(blank=True)
    looked_at = models.DateTimeField(null=True)  # when a worker wrote that
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    accepted_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    deadline_at = models.DateTimeField()
    overdue_since = models.DateTimeField(null=True, blank=True)  # when a worker first found it past its deadline

    # When and why a reorg last took one of its steps back.
    went_back_at = models.DateTimeField(null=True)
    went_back_because = models.TextField(blank=True)  # a sentence

    estimated_gas = models.PositiveBigIntegerField(null=True)
    # The same at the gas price of that moment.
    estimated_wei = Uint256Field(null=True)  # type: ignore[misc]  # the field's types don't include None
    gas_used = models.PositiveBigIntegerField(default=0)  # this batch's share of its transactions
    spent = Uint256Field(default=0)  # the same in wei

    # Since when its proof bundles and the details of its steps are said to be removed, and since when they are
    # (`proving.pruning`).
    proofs_pruned_at = models.DateTimeField(null=True)
    proofs_gone_at = models.DateTimeField(null=True)
    steps_pruned_at = models.DateTimeField(null=True)
    steps_gone_at = models.DateTimeField(null=True)

    rejecting_checks = models.PositiveIntegerField(default=0, db_default=0)  # in a row, that would have rejected it
    rejection_code = models.CharField(max_length=40, blank=True)  # while it is open: of the last of these checks
    rejection_reason = models.TextField(blank=True)  # a sentence
    # The same with its values; null: an operator, or a version without it, has written the sentence.
    rejected_because = WaitField(null=True, blank=True)
    rejection_retryable = models.BooleanField(default=False)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["status", "deadline_at"]),
            models.Index(fields=["finished_at"]),  # for counts of batches that ended lately
            models.Index(fields=["user", "created_at"]),
            models.Index(fields=["user", "id"]),
            models.Index(fields=["user", "status"]),  # each submission counts the open batches
            models.Index(fields=["api_key", "created_at"]),
            models.Index(
                fields=["finished_at"], condition=models.Q(proofs_gone_at__isnull=True), name="batches_with_proofs"
            ),
            models.Index(
                fields=["finished_at"], condition=models.Q(steps_gone_at__isnull=True), name="batches_with_steps"
            ),
        ]

    def __str__(self) -> str:
        return self.id

    @property
    def is_open(self) -> bool:
        return self.status in OPEN_STATUSES

    @property
    def took(self) -> timedelta | None:
        return self.finished_at - self.created_at if self.finished_at else None

    @property
    def is_self_funded(self) -> bool:
        return self.sender == Sender.SELF

    @property
    def why_no_proofs(self) -> str:
        """Return a sentence if its proofs were pruned, else an empty string."""
        return _why_pruned("proofs", self.proofs_pruned_at, self.finished_at, "; the facts stay in the registry")

    @property
    def why_no_steps(self) -> str:
        """Return a sentence if the details of its steps were pruned, else an empty string."""
        return _why_pruned("details of the steps", self.steps_pruned_at, self.finished_at)

    def waits(self, *, besides: "models.QuerySet[Any, Any] | None" = None, limit: int = 10) -> list[Wait]:
        """Return what the batch and the blocks of its open queries wait for, each sentence once.

        It leaves out what blocks in `besides` wait for while all goes well.
        """
        # From the batch to its blocks: others may have any number of due ones.
        blocks = Block.objects.filter(
            pk__in=self.queries.filter(step__isnull=False).values("block"), due_at__isnull=False
        )
        if besides is not None:
            blocks = blocks.exclude(failing_since=None, pk__in=besides)
        by = "wait", "waiting_for"
        waiting = blocks.filter(SAYS_WHAT_IT_WAITS_FOR).values_list(*by, "source_chain_id")
        rows = waiting.annotate(Min("failing_since"), Min("due_at")).order_by(*by, "source_chain_id")[:limit]
        waits = [
            Wait(
                reason,
                failing_since=min((row[3] for row in alike if row[3]), default=None),
                next_try_at=min((row[4] for row in alike if row[3]), default=None),
                source_chain_ids=tuple(row[2] for row in alike),
            )
            for key, group in groupby(rows, itemgetter(0, 1))
            if (alike := list(group)) and (reason := key[0] or uncoded(key[1]))
        ]
        if self.is_self_funded and self._is_left_to_others():
            waits.insert(0, Wait(wait("left_to_payer", batch=self.pk)))
        next_try_at = self.due_at if self.failing_since else None
        own = self.waits_for.parts if self.waits_for else ()
        waits[:0] = [Wait(reason, self.failing_since, next_try_at) for reason in own]
        return list({each.reason: each for each in waits}.values())

    @property
    def waits_for(self) -> WaitReason | None:
        """Return what the batch itself waits for, from this version's column or the former one."""
        return self.wait or uncoded(self.waiting_for)

    def _is_left_to_others(self) -> bool:
        """Return whether the proofs of an open query are stored, so that the rest is up to transactions."""
        return self.queries.filter(step__in=PROVABLE_STEPS).exists()


def _why_pruned(what: str, pruned_at: datetime | None, finished_at: datetime | None, addition: str = "") -> str:
    if pruned_at is None or finished_at is None:
        return ""
    days = (pruned_at - finished_at).days
    return f"The {what} of this batch were removed on {pruned_at:%Y-%m-%d}, after {days} days{addition}."


class PathUnit(models.TextChoices):
    HOPS = "hops"
    JUMPS = "jumps"


HEADER_COLUMNS = ("hash", "header_rlp", "state_root", "timestamp")
"""The columns of a block's header, all empty until it was fetched and verified."""


class Block(DueRow):
    """One block of a source chain that one destination needs to know: the unit of work.

    All queries about it, of all batches, share its header, its proofs and its transactions. It stays due after its last
    query is done, until the destination block that held every fact, (`checked_number`, `checked_hash`), is final.
    """

    destination_chain_id = models.PositiveBigIntegerField()
    source_chain_id = models.PositiveBigIntegerField()
    number = models.PositiveBigIntegerField()

    hash = models.CharField(max_length=66, blank=True)  # 0x…, empty until the header was fetched and verified
    header_rlp = models.BinaryField(null=True)
    state_root = models.CharField(max_length=66, blank=True)
    timestamp = models.PositiveBigIntegerField(null=True)  # unix seconds

    # The user in whose queue it is: the one with the fewest due blocks among the users that asked for it.
    queued_for = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, null=True, db_index=False, related_name="+"
    )
    refused_since = models.DateTimeField(null=True)  # since when no node has served proofs of it

    # The registry trusts its state root or its hash, so the path to other blocks may start here. This is a hint for
    # planning: it is checked on the chain before anything relies on it.
    is_checkpoint = models.BooleanField(default=False)
    # The path by which the registry comes to trust this block: its length in hops at the first plan, and
    # the remaining length at the last plan. A jump has the length 1, and the number of the block where it begins.
    path_unit = models.CharField(max_length=8, choices=PathUnit.choices, blank=True)  # empty: no path is needed
    path_length = models.PositiveIntegerField(default=0)
    path_left = models.PositiveIntegerField(default=0)
    path_origin = models.PositiveBigIntegerField(null=True)  # null: of no jump, or of one that needs none

    wait = WaitField(null=True, blank=True)
    waiting_for = models.TextField(blank=True)  # a sentence of an older version, as in `Batch`
    looked_at = models.DateTimeField(null=True)  # when a worker wrote that
    waits_for_path = models.BooleanField(default=False)  # its own, or another's that goes first
    checked_number = models.PositiveBigIntegerField(null=True)
    checked_hash = models.CharField(max_length=66, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["destination_chain_id", "source_chain_id", "number"], name="one_block_per_connection"
            )
        ]
        indexes: ClassVar = [
            models.Index(fields=["number"]),  # people search by it, as by the hash
            models.Index(fields=["hash"]),
            models.Index(
                fields=["destination_chain_id", "source_chain_id", "is_checkpoint", "number"], name="checkpoints"
            ),
            models.Index(
                # The last one tells whose queue it is in, so that skipping a long queue of other rows is cheap.
                fields=["destination_chain_id", "source_chain_id", "due_at", "queued_for"],
                condition=models.Q(due_at__isnull=False),
                name="due_blocks",
            ),
            models.Index(fields=["queued_for"], condition=models.Q(due_at__isnull=False), name="blocks_due_by_user"),
        ]

    def __str__(self) -> str:
        return f"block {self.number} of chain {self.source_chain_id} on chain {self.destination_chain_id}"

    @property
    def needs_action(self) -> bool:
        """Return whether somebody must act, so that it goes on."""
        return self.wait is not None and self.wait.actor in {Actor.OPERATOR, Actor.USER}

    @property
    def path_done(self) -> int:
        return self.path_length - self.path_left

    @property
    def how_far(self) -> str:
        """Return how far the path to the block is, a phrase; empty where it needs none, or nothing is left of it."""
        if self.path_left and self.path_unit == PathUnit.JUMPS:
            return "by the beacon chain" + ("" if self.path_origin is None else f", from block {self.path_origin}")
        return f"{self.path_unit} {self.path_done:,} of {self.path_length:,} done" if self.path_left else ""

    def take(self, header: "Header") -> None:
        """Set `HEADER_COLUMNS`, not saved."""
        self.hash = hex_data(header.hash)
        self.header_rlp = header.encode()
        self.state_root = hex_data(header.state_root)
        self.timestamp = header.timestamp

    def open_queries(self) -> "models.QuerySet[Query]":
        return open_queries([self])


class Query(models.Model):
    """One account, or the header, at one block of one source chain.

    A query whose block is named by a time or a tag has no block before it is admitted, because that finds the block.
    """

    # These foreign keys need no index of their own, because the indexes below begin with them.
    batch = models.ForeignKey(Batch, models.CASCADE, related_name="queries", db_index=False)
    source_chain_id = models.PositiveBigIntegerField()
    timestamp = models.PositiveBigIntegerField(null=True)  # unix seconds: the block is the latest that isn't after it
    # With a tag, the block is the newest, or the newest final one, at the time of the check. It stays that block.
    block_tag = models.CharField(max_length=16, choices=BlockTag.choices, blank=True, default="", db_default="")
    block = models.ForeignKey(Block, models.PROTECT, related_name="queries", null=True, db_index=False)
    position = models.PositiveIntegerField()  # in the request, from 0
    address = models.CharField(max_length=42, blank=True)  # EIP-55; empty: the header is asked for
    # The normalised ENS name by which the request names the account. Empty: the request has the address.
    name = models.CharField(max_length=255, blank=True, default="", db_default="")
    fields = models.PositiveIntegerField(default=0)  # a bit for each property: 1 << AccountField, or 1 << HeaderField
    slots = models.JSONField(default=list)  # storage slots in their order, 0x and 64 hexadecimal digits each
    step = models.CharField(  # noqa: DJ001 (null: no step is open, all are completed)
        max_length=24, choices=StepKind.choices, null=True, default=StepKind.INITIAL_STATE
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["batch", "position"], name="one_query_per_position"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["block", "step"]),
            # For a batch's page, which counts the queries at each step and looks for blocks that wait.
            models.Index(fields=["batch", "step"]),
            models.Index(fields=["batch", "block"]),
            models.Index(fields=["address"]),
            # For lists of an account's proven facts, in the order of the blocks.
            models.Index(fields=["address", "block"], condition=models.Q(step__isnull=True), name="facts_by_account"),
        ]

    def __str__(self) -> str:
        return f"{self.address or 'header'} at {self.block_id} for {self.batch_id}"

    @property
    def number(self) -> int:
        """Return its number in the request, from 1."""
        return self.position + 1

    @property
    def kinds(self) -> tuple[StepKind, ...]:
        """Return the steps that it goes through."""
        return tuple(StepKind) if self.address else HEADER_STEPS

    @property
    def completed(self) -> int:
        """Return how many of its steps are completed."""
        return len(self.kinds) if self.step is None else self.kinds.index(StepKind(self.step))

    @property
    def property_names(self) -> list[str]:
        return [field.name for field in (*self.account_fields, *self.header_fields)]

    @property
    def selector(self) -> str:
        """Return how the request names its block: `block:12`, `timestamp:1700000000`, `latest`, `finalized`."""
        if self.timestamp is not None:
            return f"timestamp:{self.timestamp}"
        return self.block_tag or (f"block:{self.block.number}" if self.block else "")

    @property
    def account_fields(self) -> list[AccountField]:
        return [field for field in AccountField if self.fields & 1 << field] if self.address else []

    @property
    def header_fields(self) -> list[HeaderField]:
        return [] if self.address else [field for field in HeaderField if self.fields & 1 << field]


class Step(models.Model):
    """One step of one query. Steps that have not begun have no row."""

    # It needs no index of its own, because the constraint's index begins with it.
    query = models.ForeignKey(Query, models.CASCADE, related_name="steps", db_index=False)
    kind = models.CharField(max_length=24, choices=StepKind.choices)
    status = models.CharField(max_length=16, choices=StepStatus.choices, default=StepStatus.IN_PROGRESS)
    started_at = models.DateTimeField()
    completed_at = models.DateTimeField(null=True)
    transaction_hash = models.CharField(max_length=66, blank=True)
    error = WaitField(null=True, blank=True)  # the last one
    # A sentence that a version without `error` has stored.
    last_error = models.TextField(blank=True)
    # When and why a reorg last took the query back to this step. Kept when the step completes again.
    went_back_at = models.DateTimeField(null=True)
    went_back_because = models.TextField(blank=True)  # a sentence

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["query", "kind"], name="one_step_of_each_kind")]

    def __str__(self) -> str:
        return f"{self.kind} of query {self.query_id}: {self.status}"


class WebhookEvent(models.TextChoices):
    """The events that webhooks tell (docs/specification.md, "Webhooks")."""

    DONE = "DONE"
    REJECTED = "REJECTED"
    WENT_BACK = "WENT_BACK"
    STEP = "STEP"


class Webhook(DueRow):
    """The receiver of a batch's events. It is due to deliver the first of them that is pending."""

    batch = models.OneToOneField(Batch, models.CASCADE, primary_key=True, related_name="webhook")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, db_index=False, related_name="+")  # the batch's
    receiver = models.CharField(max_length=270)  # host:port, which may be shown to the user
    sealed = models.BinaryField()  # the URL and the headers, see `queries.webhooks`
    events = models.JSONField(default=list)  # of WebhookEvent

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["user", "due_at"], condition=models.Q(due_at__isnull=False), name="webhooks_due"),
        ]

    def __str__(self) -> str:
        return f"webhook of {self.batch_id}"


class DeliveryStatus(models.TextChoices):
    PENDING = "PENDING"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"  # given up


def new_message_id() -> str:
    return f"msg_{ULID()}"


class WebhookDelivery(models.Model):
    """An event that a webhook is told, written with what happened. The events of a batch are told in order.

    The writer has locked the webhook.
    """

    message_id = models.CharField(max_length=30, unique=True, default=new_message_id)  # the same at each attempt
    # The index below begins with it.
    webhook = models.ForeignKey(Webhook, models.CASCADE, related_name="deliveries", db_index=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, db_index=False, related_name="+")  # the batch's
    event = models.CharField(max_length=16, choices=WebhookEvent.choices)
    body = models.TextField()  # the JSON that is sent
    status = models.CharField(max_length=16, choices=DeliveryStatus.choices, default=DeliveryStatus.PENDING)
    created_at = models.DateTimeField(default=timezone.now)
    next_try_at = models.DateTimeField(null=True)  # while it is pending
    gives_up_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, db_index=True)  # when it was delivered or given up
    failures = models.PositiveIntegerField(default=0)  # in a row, since it was to be sent, or sent again
    attempts = models.JSONField(default=list)  # the last ones, see `api.webhook_deliveries.DeliveryAttempt`

    class Meta:
        verbose_name_plural = "webhook deliveries"
        indexes: ClassVar = [
            models.Index(fields=["webhook", "status"]),
            models.Index(fields=["user", "id"]),
        ]

    def __str__(self) -> str:
        return f"{self.message_id} ({self.event})"


class IdempotencyKey(models.Model):
    """The key that a client has given a submission, see `queries.submission`."""

    KEPT_DAYS = 1

    # It needs no index of its own, because the constraint's index begins with it.
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, db_index=False, related_name="+")
    key = models.CharField(max_length=255)
    body_hash = models.CharField(max_length=64)  # SHA-256 of the request's body, in hex
    batch = models.ForeignKey(Batch, models.CASCADE, db_index=False, related_name="+")  # nobody deletes batches
    created_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "key"], name="one_batch_per_idempotency_key"),
        ]

    def __str__(self) -> str:
        return f"{self.key!r} of {self.user_id}: {self.batch_id}"


class ServiceClock(models.Model):
    """One row: the time of the newest block that a worker has seen, for `queries.clock`."""

    at = models.DateTimeField()

    def __str__(self) -> str:
        return str(self.at)


class Pruning(DueRow):
    """One row: when to prune next (`proving.pruning`)."""

    def __str__(self) -> str:
        return f"due at {self.due_at}"


class StorageCheck(models.Model):
    """The row that `queries.storage` writes, to see whether it can."""

    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"written at {self.at}"


def open_queries(blocks: "Collection[Block] | models.QuerySet[Block]") -> "models.QuerySet[Query]":
    """Return the queries about these blocks, of accepted batches, that have open steps."""
    return Query.objects.filter(
        block__in=blocks,
        step__isnull=False,
        batch__status__in=ADMITTED_STATUSES,
    )
