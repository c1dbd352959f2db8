"""Batches, their queries and steps, and the blocks that they are about.

`queries.submission` creates these rows, and `queries.batch_states` updates their states. Times are in UTC, and say when
this service did something.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Case, Min, Q, Value, When
from django.dispatch import Signal
from django.utils import timezone
from ulid import ULID

from accounts.models import ApiKey
from chains.encoding import hex_data
from config.database.due_rows import DueRow
from queries.columns import AccountField, EntryField, HeaderField, RejectionCode, Uint256Field
from queries.waits import Actor, WaitField, WaitReason, wait

# Every start loads the models. This import would add RLP and hashing to that.
if TYPE_CHECKING:
    from chains.tries.header import Header


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


CANCELLED = "CANCELLED"
"""The word of pages and filters for REJECTED batches that their owner has cancelled."""

# Batches with these statuses can still become DONE.
OPEN_STATUSES = (BatchStatus.RECEIVED, BatchStatus.ACCEPTED, BatchStatus.IN_PROGRESS)
ADMITTED_STATUSES = (BatchStatus.ACCEPTED, BatchStatus.IN_PROGRESS)
"""Statuses of open batches that were checked against the chains and accepted."""


class Sender(models.TextChoices):
    """The sender and payer of a batch's transactions."""

    OPERATOR = "operator"
    SELF = "self"  # the submitter or anybody else, but not this service


class StepKind(models.TextChoices):
    """The steps of a query, in their order (docs/specification.md, "Steps of a query")."""

    INITIAL_STATE = "INITIAL_STATE"
    BLOCKHASH_AVAILABLE = "BLOCKHASH_AVAILABLE"
    HEADER_ACCUMULATED = "HEADER_ACCUMULATED"
    FACTS_PROVEN = "ACCOUNT_ACCUMULATED", "Account Accumulated"  # the API's word, also for entries and times


HEADER_STEPS = (StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE, StepKind.HEADER_ACCUMULATED)
"""Steps of a query about a header, which is proven with its accumulation."""

PROVABLE_STEPS = (StepKind.BLOCKHASH_AVAILABLE, StepKind.HEADER_ACCUMULATED, StepKind.FACTS_PROVEN)
"""Steps of queries whose header and proofs are stored: the rest is up to transactions."""


class QueryKind(models.TextChoices):
    """The subject of a query. The values are words of the API."""

    ACCOUNT = "ACCOUNT"
    ENTRY = "TRANSACTION"  # a transaction of the block, with its receipt and logs
    HEADER = "HEADER"


class BlockTag(models.TextChoices):
    """Block tags of JSON-RPC that a request may use."""

    LATEST = "latest"
    FINALIZED = "finalized"


class StepStatus(models.TextChoices):
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"


@dataclass(frozen=True)
class BatchWait:
    """A reason why a batch waits. If attempts fail, it has the times of the first failure and of the next attempt."""

    reason: WaitReason
    failing_since: datetime | None = None
    next_try_at: datetime | None = None
    source_chain_ids: tuple[int, ...] = ()  # of the waiting blocks; empty: about no source chain

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


class Batch(DueRow):
    """One submitted request. It is due until it is checked against the chains and all its times have blocks."""

    id = models.CharField(primary_key=True, max_length=26, default=new_batch_id, editable=False)  # internalId, a ULID
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="batches")
    api_key = models.ForeignKey(ApiKey, models.PROTECT, related_name="batches")
    destination_chain_id = models.PositiveBigIntegerField()
    # With "self", the operator never sends: none of the operator's transactions serves a query of the batch.
    sender = models.CharField(
        max_length=8, choices=Sender.choices, default=Sender.OPERATOR, db_default=Sender.OPERATOR.value
    )
    # The maximum cost of the batch for the operator, in wei of the destination's native currency. 0 for "self".
    fee = Uint256Field()
    # True: the request's fee is `auto`, so `fee` is the estimate at the time of acceptance.
    fee_is_estimate = models.BooleanField(default=False, db_default=False)
    request = models.TextField()  # the submitted JSON
    # The owner's name for the batch. Null: it has none, as in rows of versions without this column.
    label = models.CharField(max_length=100, null=True, blank=True)  # noqa: DJ001 (the index leaves out null)
    # Number of accounts, slots, headers, transactions and logs, as in MAX_QUERIES_PER_BATCH.
    size = models.PositiveIntegerField(default=0)
    block_count = models.PositiveIntegerField(default=0)  # number of blocks that the request selects

    status = models.CharField(max_length=16, choices=BatchStatus.choices, default=BatchStatus.RECEIVED)
    wait = WaitField(null=True, blank=True)  # why the batch waits, while it is due
    looked_at = models.DateTimeField(null=True)  # when a worker wrote `wait`
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    accepted_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    deadline_at = models.DateTimeField()
    overdue_since = models.DateTimeField(null=True, blank=True)  # when a worker first noticed the passed deadline

    # When and why a reorg last reopened one of the batch's steps.
    went_back_at = models.DateTimeField(null=True)
    went_back_because = models.TextField(blank=True)  # a sentence

    estimated_gas = models.PositiveBigIntegerField(null=True)
    # The estimated gas at the gas price of that time.
    estimated_wei = Uint256Field(null=True)  # type: ignore[misc]  # the field's types don't include None
    gas_used = models.PositiveBigIntegerField(default=0)  # this batch's share of its transactions' gas
    spent = Uint256Field(default=0)  # this batch's share of its transactions' cost, in wei

    # When proof bundles and details of steps were marked as pruned (`…_pruned_at`) and deleted (`…_gone_at`) by
    # `proving.working.pruning`.
    proofs_pruned_at = models.DateTimeField(null=True)
    proofs_gone_at = models.DateTimeField(null=True)
    steps_pruned_at = models.DateTimeField(null=True)
    steps_gone_at = models.DateTimeField(null=True)

    # The number of consecutive checks that would have rejected the batch.
    rejecting_checks = models.PositiveIntegerField(default=0, db_default=0)
    rejection_code = models.CharField(max_length=40, blank=True)  # while the batch is open: code of the last such check
    rejection_reason = models.TextField(blank=True)  # a sentence
    # The rejection as a code with values. Null: an operator or a version without this column wrote the sentence.
    rejected_because = WaitField(null=True, blank=True)
    rejection_retryable = models.BooleanField(default=False)

    class Meta:
        verbose_name_plural = "batches"
        indexes: ClassVar = [
            models.Index(fields=["status", "deadline_at"]),
            models.Index(fields=["finished_at"]),  # for counts of recently ended batches
            models.Index(fields=["user", "created_at"]),
            models.Index(fields=["user", "id"]),
            models.Index(fields=["user", "status"]),  # each submission counts the open batches
            models.Index(fields=["api_key", "created_at"]),
            models.Index(fields=["finished_at"], condition=Q(proofs_gone_at__isnull=True), name="batches_with_proofs"),
            models.Index(fields=["finished_at"], condition=Q(steps_gone_at__isnull=True), name="batches_with_steps"),
            models.Index(fields=["user", "label"], condition=Q(label__isnull=False), name="batches_by_label"),
        ]

    def __str__(self) -> str:
        return self.id

    @property
    def is_open(self) -> bool:
        return self.status in OPEN_STATUSES

    @property
    def shown_status(self) -> str:
        """Return the status for pages. Batches that their owner has cancelled are no failures."""
        is_cancelled = self.status == BatchStatus.REJECTED and self.rejection_code == RejectionCode.CANCELLED_BY_USER
        return CANCELLED if is_cancelled else self.status

    @property
    def took(self) -> timedelta | None:
        return self.finished_at - self.created_at if self.finished_at else None

    @property
    def is_self_funded(self) -> bool:
        return self.sender == Sender.SELF

    @property
    def why_no_proofs(self) -> str:
        """Return a sentence if the batch's proofs were pruned, else an empty string."""
        return _why_pruned("proofs", self.proofs_pruned_at, self.finished_at, "; the facts stay in the registry")

    @property
    def why_no_steps(self) -> str:
        """Return a sentence if the details of the batch's steps were pruned, else an empty string."""
        return _why_pruned("details of the steps", self.steps_pruned_at, self.finished_at)

    def waits(self, *, besides: "models.QuerySet[Any, Any] | None" = None, limit: int = 10) -> list[BatchWait]:
        """Return the waits of the batch and of the blocks of its open queries, without duplicate sentences.

        Waits of blocks in `besides` are left out unless they fail.
        """
        # The statement begins with the batch, because other batches may have any number of due blocks.
        blocks = Block.objects.filter(
            pk__in=self.queries.filter(step__isnull=False).values("block"), due_at__isnull=False
        )
        if besides is not None:
            blocks = blocks.exclude(failing_since=None, pk__in=besides)
        waiting = blocks.exclude(wait=None).values_list("wait", "source_chain_id")
        rows = waiting.annotate(Min("failing_since"), Min("due_at")).order_by("wait", "source_chain_id")[:limit]
        waits = [
            BatchWait(
                reason,
                failing_since=min((row[2] for row in alike if row[2]), default=None),
                next_try_at=min((row[3] for row in alike if row[2]), default=None),
                source_chain_ids=tuple(row[1] for row in alike),
            )
            for reason, group in groupby(rows, itemgetter(0))
            if (alike := list(group)) and reason
        ]
        if self.is_self_funded and self._is_left_to_others():
            waits.insert(0, BatchWait(wait("left_to_payer", batch=self.pk)))
        next_try_at = self.due_at if self.failing_since else None
        own = self.wait.parts if self.wait else ()
        waits[:0] = [BatchWait(reason, self.failing_since, next_try_at) for reason in own]
        return list({each.reason: each for each in waits}.values())

    def _is_left_to_others(self) -> bool:
        """Return whether the proofs of an open query are stored, so that only transactions are missing."""
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
    """One block of a source chain that one destination must learn to trust. Workers process each block as a unit.

    All queries about it share its header, proofs and transactions. The block stays due after its last query is done,
    until the destination's block that held every fact (`checked_number`, `checked_hash`) is final.
    """

    destination_chain_id = models.PositiveBigIntegerField()
    source_chain_id = models.PositiveBigIntegerField()
    number = models.PositiveBigIntegerField()

    hash = models.CharField(max_length=66, blank=True)  # 0x…; empty until the header is fetched and verified
    header_rlp = models.BinaryField(null=True)
    state_root = models.CharField(max_length=66, blank=True)
    timestamp = models.PositiveBigIntegerField(null=True)  # unix seconds

    # The user whose queue has the block: among the users who requested it, the user with the fewest due blocks.
    queued_for = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, null=True, db_index=False, related_name="+"
    )
    refused_since = models.DateTimeField(null=True)  # when nodes stopped serving proofs of the block

    # The registry trusts the block's state root or hash, so paths to other blocks may start here. It is only a hint for
    # planning, and is checked on the chain before use.
    is_checkpoint = models.BooleanField(default=False)
    # The path by which the registry learns to trust this block: its length in hops at the first plan, and the remaining
    # length at the last plan. A jump has the length 1 and the number of the block where it begins.
    path_unit = models.CharField(max_length=8, choices=PathUnit.choices, blank=True)  # empty: no path is needed
    path_length = models.PositiveIntegerField(default=0)
    path_left = models.PositiveIntegerField(default=0)
    path_origin = models.PositiveBigIntegerField(null=True)  # null: not a jump, or a jump that begins at no block

    wait = WaitField(null=True, blank=True)
    looked_at = models.DateTimeField(null=True)  # when a worker wrote `wait`
    waits_for_path = models.BooleanField(default=False)  # for the block's own path, or for another path that goes first
    checked_number = models.PositiveBigIntegerField(null=True)
    checked_hash = models.CharField(max_length=66, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["destination_chain_id", "source_chain_id", "number"], name="one_block_per_connection"
            )
        ]
        indexes: ClassVar = [
            models.Index(fields=["number"]),  # people search by number and by hash
            models.Index(fields=["hash"]),
            models.Index(
                fields=["destination_chain_id", "source_chain_id", "is_checkpoint", "number"], name="checkpoints"
            ),
            models.Index(
                # The last column makes it cheap to skip the rows of a long queue.
                fields=["destination_chain_id", "source_chain_id", "due_at", "queued_for"],
                condition=Q(due_at__isnull=False),
                name="due_blocks",
            ),
            models.Index(fields=["queued_for"], condition=Q(due_at__isnull=False), name="blocks_due_by_user"),
        ]

    def __str__(self) -> str:
        return f"block {self.number} of chain {self.source_chain_id} on chain {self.destination_chain_id}"

    @property
    def needs_action(self) -> bool:
        """Return whether the block goes on only after the operator, the user or others act."""
        return self.wait is not None and self.wait.actor in {Actor.OPERATOR, Actor.USER, Actor.OTHERS}

    @property
    def path_done(self) -> int:
        return self.path_length - self.path_left

    @property
    def how_far(self) -> str:
        """Return a phrase for the progress of the path to the block; empty if no path remains."""
        if self.path_left and self.path_unit == PathUnit.JUMPS:
            return "by the beacon chain" + ("" if self.path_origin is None else f", from block {self.path_origin:,}")
        return f"{self.path_unit} {self.path_done:,} of {self.path_length:,} done" if self.path_left else ""

    def take(self, header: "Header") -> None:
        """Set `HEADER_COLUMNS` from the header, without saving."""
        self.hash = hex_data(header.hash)
        self.header_rlp = header.encode()
        self.state_root = hex_data(header.state_root)
        self.timestamp = header.timestamp

    def open_queries(self) -> "models.QuerySet[Query]":
        return open_queries([self])


class Query(models.Model):
    """One account, one transaction or the header, at one block of one source chain.

    A query that selects its block by a time, a tag or a transaction has no block until it is admitted.
    """

    block_number: int | None = None
    """The number of the block, in a query that isn't stored or that was read for admission."""

    # The foreign keys need no separate index, because the indexes below begin with them.
    batch = models.ForeignKey(Batch, models.CASCADE, related_name="queries", db_index=False)
    source_chain_id = models.PositiveBigIntegerField()
    timestamp = models.PositiveBigIntegerField(null=True)  # unix seconds; selects the last block that isn't later
    # A tag selects the newest block or the newest final block when the batch is checked. The block is then fixed.
    block_tag = models.CharField(max_length=16, choices=BlockTag.choices, blank=True, default="", db_default="")
    # The transaction (0x…) that selects the block which holds it. The block is then fixed, as with a tag.
    block_of = models.CharField(max_length=66, blank=True, default="", db_default="")
    block = models.ForeignKey(Block, models.PROTECT, related_name="queries", null=True, db_index=False)
    position = models.PositiveIntegerField()  # index in the request, from 0
    # The database computes the kind. So it is also right in rows that versions without this column insert.
    kind = models.GeneratedField(
        expression=Case(
            When(~Q(address=""), then=Value(QueryKind.ACCOUNT.value)),
            When(~Q(transaction_name=""), then=Value(QueryKind.ENTRY.value)),
            default=Value(QueryKind.HEADER.value),
        ),
        output_field=models.CharField(max_length=16, choices=QueryKind.choices),
        db_persist=True,
    )
    address = models.CharField(max_length=42, blank=True)  # EIP-55; empty: it is about no account
    # The transaction as the request names it: by its hash (0x…), or its index in the block. Empty: it is about none.
    transaction_name = models.CharField(max_length=66, blank=True, default="", db_default="")
    # The transaction's index in the block. With a hash, it is null until the block's transactions are verified.
    transaction_index = models.PositiveIntegerField(null=True)
    # The normalized ENS name in the request. Empty: the request has the address.
    name = models.CharField(max_length=255, blank=True, default="", db_default="")
    # A bit for each property: 1 << AccountField, 1 << EntryField, or 1 << HeaderField.
    fields = models.PositiveIntegerField(default=0)
    slots = models.JSONField(default=list)  # storage slots in order, each as 0x and 64 hexadecimal digits
    slot_names = models.JSONField(default=dict, db_default={})  # by slot, as in `queries.storage_layout.NamedSlot`
    logs = models.JSONField(default=list, db_default=[])  # indexes of logs within the receipt
    block_logs = models.JSONField(default=list, db_default=[])  # indexes of logs within the block
    # The index within the block of the receipt's first log, null until the receipts are verified.
    first_log = models.PositiveIntegerField(null=True)
    step = models.CharField(  # noqa: DJ001 (null: no step is open, all are completed)
        max_length=24, choices=StepKind.choices, null=True, default=StepKind.INITIAL_STATE
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["batch", "position"], name="one_query_per_position"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["block", "step"]),
            # For a batch's page, which counts the queries at each step and selects blocks that wait.
            models.Index(fields=["batch", "step"]),
            models.Index(fields=["batch", "block"]),
            models.Index(fields=["address"]),
            # For lists of an account's proven facts, in the order of the blocks.
            models.Index(fields=["address", "block"], condition=Q(step__isnull=True), name="facts_by_account"),
        ]

    def __str__(self) -> str:
        return f"{self.address or self.transaction_name or 'header'} at {self.block_id} for {self.batch_id}"

    @property
    def item_count(self) -> int:
        """Return the query's size for limits: the account, header or transaction, each slot and each log count 1."""
        return 1 + len(self.slots) + len(self.logs) + len(self.block_logs)

    @property
    def number(self) -> int:
        """Return the query's number in the request, from 1."""
        return self.position + 1

    @property
    def step_kinds(self) -> tuple[StepKind, ...]:
        """Return the query's steps in order."""
        return HEADER_STEPS if self.kind == QueryKind.HEADER else tuple(StepKind)

    @property
    def completed(self) -> int:
        """Return the number of completed steps."""
        return len(self.step_kinds) if self.step is None else self.step_kinds.index(StepKind(self.step))

    @property
    def property_names(self) -> list[str]:
        return [field.name for field in (*self.account_fields, *self.transaction_fields, *self.header_fields)]

    @property
    def selector(self) -> str:
        """Return the block's selector in the request, for example `block:12`, `timestamp:1700000000` or `latest`."""
        if self.timestamp is not None:
            return f"timestamp:{self.timestamp}"
        if self.block_of:
            return f"transaction:{self.block_of}"
        return self.block_tag or (f"block:{self.block.number}" if self.block else "")

    @property
    def account_fields(self) -> list[AccountField]:
        return [field for field in AccountField if self.fields & 1 << field] if self.kind == QueryKind.ACCOUNT else []

    @property
    def header_fields(self) -> list[HeaderField]:
        return [field for field in HeaderField if self.fields & 1 << field] if self.kind == QueryKind.HEADER else []

    @property
    def transaction_fields(self) -> list[EntryField]:
        return [field for field in EntryField if self.fields & 1 << field] if self.kind == QueryKind.ENTRY else []

    @property
    def known_logs(self) -> list[int]:
        """Return the requested logs by their indexes within the receipt, as far as these are known."""
        of_block = [] if self.first_log is None else [index - self.first_log for index in self.block_logs]
        return list(dict.fromkeys([*self.logs, *of_block]))


class Step(models.Model):
    """One step of one query. A step gets its row when it begins."""

    # This needs no separate index, because the constraint's index begins with it.
    query = models.ForeignKey(Query, models.CASCADE, related_name="steps", db_index=False)
    kind = models.CharField(max_length=24, choices=StepKind.choices)
    status = models.CharField(max_length=16, choices=StepStatus.choices, default=StepStatus.IN_PROGRESS)
    started_at = models.DateTimeField()
    completed_at = models.DateTimeField(null=True)
    transaction_hash = models.CharField(max_length=66, blank=True)
    error = WaitField(null=True, blank=True)  # the last failure
    # When and why a reorg last reopened this step. Both stay when the step completes again.
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
    TEST = "TEST"  # about no batch


class Webhook(DueRow):
    """The receiver of a batch's events, or of a user's test event. The row is due while a delivery is pending."""

    # The receiver of a test event has a ULID of its own, which no batch has. So the database doesn't check it.
    batch = models.OneToOneField(Batch, models.CASCADE, primary_key=True, related_name="webhook", db_constraint=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, db_index=False, related_name="+"
    )  # the batch's user, or the sender of the test event
    receiver = models.CharField(max_length=270)  # host:port, which the user may see
    sealed = models.BinaryField()  # the URL and the headers, see `queries.webhooks`
    events = models.JSONField(default=list)  # values of WebhookEvent

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["user", "due_at"], condition=Q(due_at__isnull=False), name="webhooks_due"),
            models.Index(fields=["user", "batch"]),
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
    """An event to deliver to a webhook, stored together with the change. A batch's events are delivered in order.

    Writers lock the webhook's row first.
    """

    message_id = models.CharField(max_length=30, unique=True, default=new_message_id)  # same at each attempt
    # This needs no separate index, because the index below begins with it.
    webhook = models.ForeignKey(Webhook, models.CASCADE, related_name="deliveries", db_index=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, db_index=False, related_name="+"
    )  # the batch's user
    event = models.CharField(max_length=16, choices=WebhookEvent.choices)
    body = models.TextField()  # the JSON to send
    status = models.CharField(max_length=16, choices=DeliveryStatus.choices, default=DeliveryStatus.PENDING)
    created_at = models.DateTimeField(default=timezone.now)
    next_try_at = models.DateTimeField(null=True)  # while the delivery is pending
    gives_up_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, db_index=True)  # when it was delivered or given up
    failures = models.PositiveIntegerField(default=0)  # consecutive, since the last request to send it
    attempts = models.JSONField(default=list)  # the newest attempts, see `api.webhook_deliveries.DeliveryAttempt`

    class Meta:
        verbose_name_plural = "webhook deliveries"
        indexes: ClassVar = [
            models.Index(fields=["webhook", "status"]),
            models.Index(fields=["user", "id"]),
        ]

    def __str__(self) -> str:
        return f"{self.message_id} ({self.event})"


class IdempotencyKey(models.Model):
    """The key that a client gave a submission, see `queries.submission`."""

    KEPT_DAYS = 1

    # This needs no separate index, because the constraint's index begins with it.
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, db_index=False, related_name="+")
    key = models.CharField(max_length=255)
    body_hash = models.CharField(max_length=64)  # SHA-256 of the request's body, in hex
    batch = models.ForeignKey(Batch, models.CASCADE, db_index=False, related_name="+")  # batches are never deleted
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
    """One row: the time of the next pruning (`proving.working.pruning`)."""

    def __str__(self) -> str:
        return f"due at {self.due_at}"


class StorageCheck(models.Model):
    """A row that `queries.database_check` writes to test whether the database takes writes."""

    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"written at {self.at}"


def open_queries(blocks: "Collection[Block] | models.QuerySet[Block]") -> "models.QuerySet[Query]":
    """Return the unfinished queries of accepted batches about these blocks."""
    return Query.objects.filter(
        block__in=blocks,
        step__isnull=False,
        batch__status__in=ADMITTED_STATUSES,
    )
