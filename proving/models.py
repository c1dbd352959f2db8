"""Tables of proving: registries, fetched proofs, the signers' transactions and the workers' heartbeats."""

from datetime import datetime, timedelta
from typing import ClassVar

from django.db import models
from django.db.models.functions import Now
from django.utils import timezone

from chains.encoding import HISTORY_WINDOW
from database.due_rows import DueRow
from queries.columns import Uint256Field
from queries.models import Batch, Block, Query
from queries.waits import Value, WaitField, WaitReason, uncoded, wait


class _InUse(models.Manager["FactsRegistry"]):
    def get_queryset(self) -> models.QuerySet["FactsRegistry"]:
        return super().get_queryset().filter(replaced_at=None)


class FactsRegistry(DueRow):
    """A deployed facts registry of one pair of source chain and destination chain.

    At most one is in use; replaced ones stay on record. The row is due when the registry needs upkeep.
    """

    destination_chain_id = models.PositiveBigIntegerField()
    source_chain_id = models.PositiveBigIntegerField()
    address = models.CharField(max_length=42)  # EIP-55; empty until the transaction that creates it is stored
    block_hash_source = models.CharField(max_length=42)  # address of the contract
    history_window = models.PositiveBigIntegerField(default=HISTORY_WINDOW)  # slots, as deployed
    multicall = models.CharField(max_length=42, blank=True)  # address of the contract that makes several calls in one
    # Address of the contract that proves old blocks by the beacon chain; empty: it was deployed without one.
    beacon_history = models.CharField(max_length=42, blank=True, db_default="", default="")
    jump_origin = models.PositiveBigIntegerField(null=True)  # the source's block that the last jump began at
    wait = WaitField(null=True, blank=True)  # what its upkeep waits for
    waiting_for = models.TextField(blank=True)  # the sentence of a version without `wait`
    notice = models.TextField(blank=True)  # a sentence for the operator, such as about an attester that contradicts
    deployed_at = models.DateTimeField(null=True)  # null: the deploying transactions are not confirmed yet
    # keccak-256 of the code at the address when it was last compared; empty: it never was
    code_hash = models.CharField(max_length=66, blank=True)
    refused = models.TextField(blank=True)  # why it may not be used, sentences; empty: it may
    replaced_at = models.DateTimeField(null=True)  # null: it is in use, or being deployed
    replaced_because = models.TextField(blank=True)  # the reason, sentences

    objects = models.Manager["FactsRegistry"]()
    in_use = _InUse()

    class Meta:
        verbose_name_plural = "facts registries"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["destination_chain_id", "source_chain_id"],
                condition=models.Q(replaced_at=None),
                name="one_registry_in_use_per_connection",
            )
        ]

    def __str__(self) -> str:
        return f"{self.address} on chain {self.destination_chain_id} for chain {self.source_chain_id}"

    @property
    def refusal(self) -> WaitReason:
        """Return why it is `refused`, with what the operator must do."""
        ends = {"chain": self.destination_chain_id, "source": self.source_chain_id}
        return wait("registry_refused", problem=self.refused, **ends)


class AccountProof(models.Model):
    """A verified proof of one account at one block. Once it is stored, proving needs no archive node."""

    block = models.ForeignKey(Block, models.CASCADE, related_name="account_proofs")
    address = models.CharField(max_length=42)  # EIP-55
    nodes = models.JSONField()  # trie nodes in hex, root first; empty: they were pruned
    nonce = Uint256Field()
    balance = Uint256Field()  # wei
    storage_root = models.CharField(max_length=66)
    code_hash = models.CharField(max_length=66)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["block", "address"], name="one_proof_per_account")]

    def __str__(self) -> str:
        return f"{self.address} at {self.block_id}"


class SlotProof(models.Model):
    """A verified proof of one storage slot of a proven account."""

    account = models.ForeignKey(AccountProof, models.CASCADE, related_name="slot_proofs")
    slot = models.CharField(max_length=66)  # 0x and 64 hexadecimal digits
    nodes = models.JSONField()  # storage trie nodes in hex, root first; empty: they were pruned
    value = Uint256Field()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["account", "slot"], name="one_proof_per_slot")]

    def __str__(self) -> str:
        return f"{self.slot} of {self.account_id}"


class Signer(DueRow):
    """An account that sends transactions on one destination. The row is due when they are to be monitored.

    A worker that sends or replaces locks the rows of all signers of the destination (`proving.transactions.signers`).
    """

    chain_id = models.PositiveBigIntegerField()
    address = models.CharField(max_length=42)  # EIP-55
    wait = WaitField(null=True, blank=True)  # a notice for the operator, such as about a low balance
    # A sentence that a version without `wait` has stored.
    notice = models.TextField(blank=True)
    # Totals over all of its final transactions, also those that are no longer stored.
    final_count = models.PositiveBigIntegerField(default=0, db_default=0)
    final_failures = models.PositiveBigIntegerField(default=0, db_default=0)  # of them
    final_gas = models.PositiveBigIntegerField(default=0, db_default=0)
    final_wei = Uint256Field(default=0, db_default=0)
    nonce_problem = models.TextField(blank=True, db_default="", default="")  # a sentence
    receipt_problem = models.TextField(blank=True, db_default="", default="")  # a sentence

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["chain_id", "address"], name="one_signer_per_account")]

    def __str__(self) -> str:
        return f"{self.address} on chain {self.chain_id}"


# Gas of a transaction that does nothing (Yellow Paper, G_transaction).
CANCELLATION_GAS = 21_000
# A final transaction counts at least this fraction (1/4) of its maximum cost: honest ones seldom cost less.
_LEAST_PART = 4

GWEI = 10**9
# Maximum of a column, so that a thousand of them can be added up. It is more than exists of any currency.
_MOST_GWEI = 2**53


def in_gwei(wei: int) -> int:
    """Return an amount in gwei, rounded up."""
    return min(_MOST_GWEI, -(-wei // GWEI))


class TransactionState(models.TextChoices):
    PENDING = "PENDING"  # its nonce is reserved; signed and broadcast, or about to be
    MINED = "MINED"
    CONFIRMED = "CONFIRMED"  # mined as deep as the chain's `confirmations` ask
    FINAL = "FINAL"  # mined in a final block: nothing can change any more
    DISPLACED = "DISPLACED"  # its nonce was used by a transaction that isn't ours


# States in which the transaction may still take effect.
LIVE_STATES = (TransactionState.PENDING, TransactionState.MINED)
# States of a transaction whose cost its batches show as spent.
SPENT_STATES = (TransactionState.CONFIRMED, TransactionState.FINAL)
# States that the chain can still change.
WATCHED_STATES = (*LIVE_STATES, TransactionState.CONFIRMED)


def proves_facts(block: str, transaction: str = "") -> models.Q:
    """Select transactions of a query that prove its facts, and don't only extend the registry's trust.

    `block` is the path to the query's block, `transaction` that to the transaction.
    """
    prefix = f"{transaction}__" if transaction else ""
    return models.Q(**{f"{prefix}extends": None}) | models.Q(**{f"{prefix}accumulates": models.F(block)})


class Transaction(models.Model):
    """One nonce of a signer: its purpose and its state. Its versions compete for the nonce."""

    signer = models.ForeignKey(Signer, models.PROTECT, related_name="transactions")
    nonce = models.PositiveBigIntegerField()
    to = models.CharField(max_length=42, blank=True)  # EIP-55; empty: creates a contract
    data = models.BinaryField()
    gas_limit = models.PositiveBigIntegerField()
    # Wei besides the gas, on rollups. Before the receipt, an estimate with a margin.
    data_fee = Uint256Field(default=0)
    # The expected data fee, which counts again if a reorganisation removes the transaction.
    expected_data_fee = Uint256Field(default=0)
    queries = models.ManyToManyField(Query, related_name="transactions")  # that it is for; empty: the operator's own
    # Queries whose facts it proves only in part.
    continued = models.ManyToManyField(Query, related_name="continued_by")
    accumulates = models.ManyToManyField(Block, related_name="accumulating_transactions")  # whose headers it carries
    extends = models.ForeignKey(  # whose trust it extends to further blocks
        FactsRegistry, models.SET_NULL, null=True, related_name="extending_transactions"
    )
    state = models.CharField(max_length=10, choices=TransactionState.choices, default=TransactionState.PENDING)
    created_at = models.DateTimeField(default=timezone.now)
    spent_at = models.DateTimeField(default=timezone.now, db_index=True)  # when it was reserved, or seen in a block
    error = WaitField(null=True, blank=True)  # the last one
    last_error = models.TextField(blank=True)  # the sentence of an older release, which has no `error`
    pruned_at = models.DateTimeField(null=True)  # since when `data`, and `raw` of its versions, are empty

    # Fields of the mined version.
    hash = models.CharField(max_length=66, blank=True)
    block_number = models.PositiveBigIntegerField(null=True)
    block_hash = models.CharField(max_length=66, blank=True)
    succeeded = models.BooleanField(null=True)
    gas_used = models.PositiveBigIntegerField(default=0)
    # The expected gas, by which later estimates are corrected (`proving.gas`). 0: unknown.
    expected_gas = models.PositiveBigIntegerField(default=0, db_default=0)
    gas_price = Uint256Field(default=0)  # wei per gas, effective
    reserved_gwei = models.BigIntegerField(default=0)  # `reserved`, rounded up, so that a database adds it up

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["signer", "nonce"], name="one_transaction_per_nonce")]
        indexes: ClassVar = [
            models.Index(fields=["signer", "state"]),
            models.Index(fields=["signer", "spent_at", "reserved_gwei"], name="what_counts_in_a_day"),
            models.Index(fields=["spent_at"], condition=models.Q(pruned_at__isnull=True), name="with_calldata"),
        ]

    def __str__(self) -> str:
        return f"nonce {self.nonce} of {self.signer_id}: {self.state}"

    @property
    def hashes(self) -> list[str]:
        """Return the hashes of the versions that are signed, the newest last."""
        versions = sorted(self.versions.all(), key=lambda version: version.pk)
        return [version.hash for version in versions if version.hash]

    @property
    def newest(self) -> "SignedTransaction":
        """Return the version that was reserved last among those that are signed, or among all if none is."""
        return max(self.versions.all(), key=lambda version: (bool(version.hash), version.pk))

    @property
    def latest_hash(self) -> str:
        """Return the hash of the mined version, else of the newest one; empty: none is signed yet."""
        return self.hash or next(reversed(self.hashes), "")

    @property
    def label(self) -> str:
        """Return the hash, or the nonce until a version is signed."""
        return self.latest_hash or f"with nonce {self.nonce}"

    @property
    def waits_for(self) -> WaitReason:
        """Return what the transaction waits for while it is under way."""
        if self.state != TransactionState.PENDING:
            return wait("transaction_mined", transaction=self.latest_hash)
        if error := self.error or uncoded(self.last_error):
            return wait("transaction_under_way", transaction=self.label, reason=error)
        return wait("transaction_pending" if self.latest_hash else "transaction_unsigned", transaction=self.label)

    @property
    def gas(self) -> int:
        """Return the used gas, or the maximum gas that it can still use."""
        if self.state == TransactionState.DISPLACED:
            return 0
        return self.gas_limit if self.state == TransactionState.PENDING else self.gas_used

    @property
    def cost(self) -> int:
        """Return the cost in wei, or the maximum that it can still cost, as any of its versions may be mined."""
        if self.state == TransactionState.DISPLACED:
            return 0
        if self.state != TransactionState.PENDING:
            return self.gas_used * self.gas_price + self.data_fee
        return self.most_for_gas + self.data_fee

    @property
    def most_for_gas(self) -> int:
        """Return the most that its gas can cost, in wei."""
        return max((version.gas * version.max_fee_per_gas for version in self.versions.all()), default=0)

    @property
    def reserved(self) -> int:
        """Return the wei that count against limits of a day.

        A broadcast transaction may be mined even if a node says that another used its nonce. A node may also call it
        final too early, or lie about its cost. So a part of its maximum cost counts in any case.
        """
        most = self.most_for_gas + max(self.data_fee, self.expected_data_fee)
        if self.state in {TransactionState.PENDING, TransactionState.DISPLACED}:
            return most
        return max(self.cost, most // _LEAST_PART if self.state == TransactionState.FINAL else most)

    def reserve(self) -> None:
        """Set `reserved_gwei` from `reserved`. Call it after each change of versions or state."""
        self.reserved_gwei = in_gwei(self.reserved)


class Share(models.Model):
    """One batch's part of a transaction's cost. Before it is mined, the part of its maximum cost."""

    transaction = models.ForeignKey(Transaction, models.CASCADE, related_name="shares")
    batch = models.ForeignKey(Batch, models.CASCADE, related_name="shares")
    gas = models.PositiveBigIntegerField()
    wei = Uint256Field()
    # Its part of `Transaction.reserved_gwei`, which counts against the limit of its user.
    reserved_gwei = models.BigIntegerField(default=0, db_default=0)
    # Its part of the transaction's gas limit, decided when that was stored: nothing that happens later moves cost from
    # one batch to another.
    weight = models.PositiveBigIntegerField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["transaction", "batch"], name="one_share_per_batch")]

    def __str__(self) -> str:
        return f"{self.gas} gas of {self.transaction_id} for {self.batch_id}"


def goes_to_replaced_registry() -> models.Exists:
    """Select shares of transactions to a replaced registry or its block hash source.

    Their facts are proven again, and neither a batch nor a user's limit pays twice.
    """
    to = models.OuterRef("transaction__to")
    replaced = FactsRegistry.objects.filter(
        models.Q(address=to) | models.Q(multicall=to) | models.Q(block_hash_source=to),
        destination_chain_id=models.OuterRef("transaction__signer__chain_id"),
        replaced_at__isnull=False,
    )
    return models.Exists(replaced)


class SignedTransaction(models.Model):
    """One version of a transaction: its fields are reserved first, then signed, and stored before they are broadcast.

    A retry signs these very fields, or broadcasts these very bytes.
    """

    transaction = models.ForeignKey(Transaction, models.CASCADE, related_name="versions")
    hash = models.CharField(max_length=66, unique=True, null=True)  # noqa: DJ001 (unique); null: it isn't signed yet
    raw = models.BinaryField()  # the signed bytes; empty: it isn't signed yet, or they were pruned
    max_fee_per_gas = Uint256Field()  # wei
    max_priority_fee_per_gas = Uint256Field()  # wei
    gas_limit = models.PositiveBigIntegerField(null=True)  # of a cancellation; null: the transaction's
    is_cancellation = models.BooleanField(default=False)  # only uses up the nonce, because its purpose is gone
    created_at = models.DateTimeField(default=timezone.now)
    broadcast_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.hash or f"a version of {self.transaction_id} that isn't signed yet"

    @property
    def gas(self) -> int:
        """Return the gas limit."""
        return self.transaction.gas_limit if self.gas_limit is None else self.gas_limit


class StopCode(models.TextChoices):
    """Reason for a stop of sending. Its label is a sentence for people."""

    OPERATOR = "operator", ""
    NOT_BELIEVED = "not_believed", "Nodes say again and again what can't be true of its transactions."


class Stop(models.Model):
    """A stop of sending, see `proving.stops`: of a whole destination, of one connection, or of one signer."""

    chain_id = models.PositiveBigIntegerField()  # the destination
    source_chain_id = models.PositiveBigIntegerField(default=0)  # of the connection; 0: it isn't about one
    signer = models.CharField(max_length=42, blank=True)  # EIP-55; empty: it isn't about one
    code = models.CharField(max_length=20, choices=StopCode.choices, default=StopCode.OPERATOR)
    reason = models.CharField(max_length=200, blank=True)  # a sentence of the operator, which users see
    by = models.CharField(max_length=60)  # an operator's address, `accounts.operator_log.COMMAND`, or a worker
    since = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["chain_id", "source_chain_id", "signer"], name="one_stop_of_each")
        ]

    def __str__(self) -> str:
        return f"stop {self.subject}"

    @property
    def subject(self) -> str:
        if self.signer:
            return f"by the signer {self.signer} on chain {self.chain_id}"
        if self.source_chain_id:
            return f"from chain {self.source_chain_id} to chain {self.chain_id}"
        return f"on chain {self.chain_id}"

    @property
    def wait(self) -> WaitReason:
        """Return what waits for this stop to end."""
        who = "The operator" if self.code == StopCode.OPERATOR else "A worker"
        values: dict[str, Value] = {"who": who, "why": self.reason or StopCode(self.code).label, "chain": self.chain_id}
        if self.signer:
            return wait("signer_stopped", signer=self.signer, **values)
        if self.source_chain_id:
            return wait("connection_stopped", source=self.source_chain_id, **values)
        return wait("chain_stopped", **values)

    @property
    def sentence(self) -> str:
        return str(self.wait)


class ChainHead(models.Model):
    """A destination's head when a worker last saw it: pages count confirmations by it without asking a chain."""

    chain_id = models.PositiveBigIntegerField(primary_key=True)
    number = models.PositiveBigIntegerField()
    final = models.PositiveBigIntegerField()  # the newest final block
    seen_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"block {self.number} of chain {self.chain_id}"


class ChainWatch(models.Model):
    """A worker's last observation of a configured chain, which `/healthz` shows without asking a chain."""

    chain_id = models.PositiveBigIntegerField(primary_key=True)
    due_at = models.DateTimeField(null=True, blank=True, db_index=True)  # when it is observed again; null: at once
    looked_at = models.DateTimeField(null=True)
    timestamp = models.PositiveBigIntegerField(null=True)  # unix seconds, of the newest block that was seen
    problems = models.JSONField(default=list)  # pairs of a code and a sentence, as `proving.health.findings.Problem`
    number = models.PositiveBigIntegerField(null=True)  # of the newest block that was seen
    seen_at = models.DateTimeField(null=True)  # when a node last reported that block
    final = models.PositiveBigIntegerField(null=True)  # the newest final block, if nodes report one
    gas_price = Uint256Field(null=True)  # type: ignore[misc]  # wei, of a destination: base fee and tip
    keeps_hashes = models.BooleanField(null=True)  # whether its state has a history of block hashes (EIP-2935)
    # Set for destinations: the signers' wei by their addresses, in decimal digits; and wei counted in the daily limit.
    balances = models.JSONField(default=dict, null=True)
    spent_in_day = Uint256Field(null=True)  # type: ignore[misc]  # the field's types don't include None

    def __str__(self) -> str:
        return f"chain {self.chain_id}"


class AttesterWatch(models.Model):
    """The last answers of a configured connection's attesters. Workers also ask them while there is no work."""

    source_chain_id = models.PositiveBigIntegerField()
    destination_chain_id = models.PositiveBigIntegerField()
    asked_at = models.DateTimeField(null=True)  # set by a worker before it asks
    answered_at = models.DateTimeField(null=True)
    block = models.PositiveBigIntegerField(null=True)  # of the source chain, about which they were asked
    answers = models.JSONField(default=list)  # by `proving.health.attester_checks`, in the order of chains.toml

    class Meta:
        verbose_name_plural = "attester watches"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["destination_chain_id", "source_chain_id"], name="one_watch_per_connection")
        ]

    def __str__(self) -> str:
        return f"attesters of chain {self.source_chain_id} for chain {self.destination_chain_id}"


class BeaconAnchor(models.Model):
    """A beacon block named in a header of a source chain, with its state's summaries. Jumps begin there.

    It is verified when it is stored, and again each time that it is read (`proving.paths.beacon_fetching`).
    """

    chain_id = models.PositiveBigIntegerField()
    root = models.CharField(max_length=66)  # the beacon block's
    slot = models.PositiveBigIntegerField()
    proposer = models.PositiveBigIntegerField()
    parent_root = models.CharField(max_length=66)
    state_root = models.CharField(max_length=66)
    body_root = models.CharField(max_length=66)
    summaries = models.BinaryField()  # 64 bytes each
    branch = models.BinaryField()  # from the root of all summaries to that of the state
    used_at = models.DateTimeField(default=timezone.now, db_index=True)  # right to a day

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["chain_id", "root"], name="one_anchor_per_beacon_block")
        ]

    def __str__(self) -> str:
        return f"slot {self.slot} of the beacon chain of chain {self.chain_id}"


class JumpLeavesKind(models.TextChoices):
    PERIOD = "period"  # of the beacon chain: 32 bytes for each slot, the root of its block or of the one before
    EPOCH = "epoch"  # of blocks before the Merge: for each its hash and its total difficulty, 32 bytes each


class JumpLeaves(DueRow):
    """The leaves of a tree that jumps to old blocks lead through. The row is due until it is filled."""

    chain_id = models.PositiveBigIntegerField()
    kind = models.CharField(max_length=6, choices=JumpLeavesKind.choices)
    number = models.PositiveIntegerField()
    # The root of the state roots follows the leaves of a period before Capella.
    content = models.BinaryField(default=b"")
    is_complete = models.BooleanField(default=False)
    problem = models.TextField(blank=True, db_default="", default="")  # why they could not be fetched, a sentence
    used_at = models.DateTimeField(default=timezone.now, db_index=True)  # right to a day

    class Meta:
        verbose_name_plural = "jump leaves"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["chain_id", "kind", "number"], name="one_row_of_leaves_per_tree")
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.number} of chain {self.chain_id}"


class Lane(models.Model):
    """A part of the work that one worker does at a time, see `proving.lanes`."""

    name = models.CharField(max_length=60, primary_key=True)
    token = models.CharField(max_length=32, blank=True)  # of the worker that holds it; empty: none does
    until = models.DateTimeField(null=True)  # when another worker may take it, unless it is renewed before

    def __str__(self) -> str:
        return self.name


class WorkerHeartbeat(models.Model):
    """A running worker's sign of life, by the database's clock. A killed worker stops renewing it."""

    worker = models.CharField(max_length=100, primary_key=True)
    started_at = models.DateTimeField()
    beat_at = models.DateTimeField(db_index=True)

    # Time without a sign of life after which a worker counts as dead.
    SILENCE: ClassVar[timedelta] = timedelta(seconds=20)

    def __str__(self) -> str:
        return self.worker

    @classmethod
    def last(cls) -> datetime | None:
        """Return when a worker was last heard of."""
        beats = cls.objects.filter(beat_at__lt=Now() + cls.SILENCE)
        return beats.order_by("-beat_at").values_list("beat_at", flat=True).first()

    @classmethod
    def running(cls) -> "models.QuerySet[WorkerHeartbeat]":
        """Select the running workers. A sign of life in the future comes from a wrong clock, and doesn't count."""
        return cls.objects.filter(beat_at__gt=Now() - cls.SILENCE, beat_at__lt=Now() + cls.SILENCE)
