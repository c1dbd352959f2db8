"""Database tables of proving: registries, fetched proofs, the signers' transactions, and workers' heartbeats."""

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar, Self

from django.db import models
from django.db.models.functions import Now
from django.utils import timezone
from ulid import ULID

from chains import encoding
from config.database.due_rows import DueRow
from queries.columns import HeaderField, Uint256Field
from queries.models import Batch, Block, Query
from queries.waits import Value, WaitField, WaitReason, wait

SEEN = timedelta(minutes=3)
"""The age from which a worker's observation says little, and a stored problem isn't shown: three turns of any lane."""


class _InUse(models.Manager["FactsRegistry"]):
    def get_queryset(self) -> models.QuerySet["FactsRegistry"]:
        return super().get_queryset().filter(replaced_at=None)


class FactsRegistry(DueRow):
    """A deployed facts registry for one pair of source chain and destination chain.

    At most one registry of a pair is in use. Replaced registries stay in the table. The row is due when the registry
    needs upkeep.
    """

    destination_chain_id = models.PositiveBigIntegerField()
    source_chain_id = models.PositiveBigIntegerField()
    address = models.CharField(max_length=42)  # EIP-55; an older version stored rows without it
    block_hash_source = models.CharField(max_length=42)  # address of the contract
    history_window = models.PositiveBigIntegerField(default=encoding.HISTORY_WINDOW)  # number of slots, as deployed
    # Address of the contract that makes several calls in one transaction.
    multicall = models.CharField(max_length=42, blank=True)
    # Address of the contract that proves old blocks by the beacon chain. Empty if there is none.
    beacon_history = models.CharField(max_length=42, blank=True, db_default="", default="")
    # First slot whose block that contract doesn't know. 2**63 - 1: no such slot is known. null: there is no contract,
    # or it was not compared yet.
    history_end = models.PositiveBigIntegerField(null=True)
    # Address of a `FactsReader` that reads this registry. Empty if none is known.
    reader = models.CharField(max_length=42, blank=True, db_default="", default="")
    jump_origin = models.PositiveBigIntegerField(null=True)  # number of the source's block at which the last jump began
    wait = WaitField(null=True, blank=True)  # what its upkeep waits for
    # A notice for the operator, for example about an attester that contradicts our nodes, and when it was last so.
    risk = WaitField(null=True, blank=True)
    risk_seen_at = models.DateTimeField(null=True)
    deployed_at = models.DateTimeField(null=True)  # null: an older version has begun, and not ended, to deploy it
    # keccak-256 of the code at the address when it was last compared. Empty before the first comparison.
    code_hash = models.CharField(max_length=66, blank=True)
    refused = models.TextField(blank=True)  # sentences that say why it must not be used; empty if it may be used
    replaced_at = models.DateTimeField(null=True)  # null if it is in use, or being deployed
    replaced_because = models.TextField(blank=True)  # sentences with the reason

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
    def current_risks(self) -> "tuple[WaitReason, ...]":
        """Return the risks that were seen lately. Nobody looks whether one is over where nothing is asked."""
        is_current = self.risk_seen_at and timezone.now() - self.risk_seen_at < AttesterWatch.STALE
        return self.risk.parts if self.risk and is_current else ()

    @property
    def refusal(self) -> WaitReason:
        """Return why the registry must not be used (`refused`), and what the operator must do."""
        ends = {"chain": self.destination_chain_id, "source": self.source_chain_id}
        return wait("registry_refused", problem=self.refused, **ends)


class AccountProof(models.Model):
    """A verified proof of one account at one block. After it is stored, proving needs no archive node."""

    block = models.ForeignKey(Block, models.CASCADE, related_name="account_proofs")
    address = models.CharField(max_length=42)  # EIP-55
    nodes = models.JSONField()  # trie nodes in hex, root first; empty after pruning
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
    nodes = models.JSONField()  # storage trie nodes in hex, root first; empty after pruning
    value = Uint256Field()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["account", "slot"], name="one_proof_per_slot")]

    def __str__(self) -> str:
        return f"{self.slot} of {self.account_id}"


class BlockTrie(models.Model):
    """All receipts of a block, or all its transactions. They make a root of its header; a proof takes all."""

    block = models.ForeignKey(Block, models.CASCADE, related_name="tries", db_index=False)
    root = models.PositiveSmallIntegerField()  # the field of the header
    count = models.PositiveIntegerField()  # number of the values
    # the trie's values in the order of transactions, as `encoding.compress_values` returns them
    compressed = models.BinaryField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["block", "root"], name="one_trie_of_each_root")]

    def __str__(self) -> str:
        return f"{HeaderField(self.root).label} of {self.block_id}"

    @classmethod
    def of(cls, block: Block, root: HeaderField, values: Sequence[bytes]) -> Self:
        return cls(block=block, root=root, count=len(values), compressed=encoding.compress_values(values))

    @property
    def values(self) -> list[bytes]:
        """Return the trie's values in the order of transactions."""
        return encoding.decompress_values(bytes(self.compressed))


class ProvenTransaction(models.Model):
    """A verified receipt of a transaction that a query names, kept when the block's tries are pruned."""

    block = models.ForeignKey(Block, models.CASCADE, related_name="proven_transactions", db_index=False)
    index = models.PositiveIntegerField()  # in the block
    receipt = models.BinaryField()  # the value in the trie of receipts
    hash = models.CharField(max_length=66, blank=True)  # 0x…; empty: the trie of transactions wasn't read
    # See `proving.reading.block_contents.EntrySize`.
    receipt_size = models.PositiveIntegerField()
    log_count = models.PositiveIntegerField()
    transaction_size = models.PositiveIntegerField(default=0)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["block", "index"], name="one_row_per_transaction")]

    def __str__(self) -> str:
        return f"transaction {self.index} of {self.block_id}"


class Signer(DueRow):
    """An account that sends transactions on one destination. The row is due when its transactions must be monitored.

    A worker that sends or replaces transactions locks the rows of all the destination's signers
    (`proving.sending.signers`).
    """

    chain_id = models.PositiveBigIntegerField()
    address = models.CharField(max_length=42)  # EIP-55
    # A notice for the operator, for example about a low balance, and when a turn of sending last gave it.
    wait = WaitField(null=True, blank=True)
    wait_seen_at = models.DateTimeField(null=True)
    # Totals of all its final transactions, including those that are no longer stored.
    final_count = models.PositiveBigIntegerField(default=0, db_default=0)
    final_failures = models.PositiveBigIntegerField(default=0, db_default=0)  # number of failed transactions among them
    final_gas = models.PositiveBigIntegerField(default=0, db_default=0)
    final_wei = Uint256Field(default=0, db_default=0)
    # The monitor writes these two. While there is one, the row stays due.
    nonce_fault = WaitField(null=True, blank=True)
    receipt_fault = WaitField(null=True, blank=True)
    signing_problem = WaitField(null=True, blank=True)  # why its signing service doesn't sign; null: it does
    # Stored transactions have used all nonces from the first observation up to this one. null: there is none yet.
    accounted_nonce = models.PositiveBigIntegerField(null=True)
    # True if only one node reported the first one, without a proof: a lower one takes its place. null: it is sure.
    accounted_is_doubtful = models.BooleanField(null=True)
    # Later nonces that the chain has used, and no stored transaction has.
    foreign_count = models.PositiveBigIntegerField(default=0, db_default=0)
    foreign_since = models.DateTimeField(null=True)  # when a worker first saw one of them; null: there is none
    # True while only one node reports them, and no proof confirms it. null: not suspected, but sure.
    foreign_is_suspected = models.BooleanField(null=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["chain_id", "address"], name="one_signer_per_account")]

    def __str__(self) -> str:
        return f"{self.address} on chain {self.chain_id}"

    @property
    def is_robbed(self) -> bool:
        """Return whether it is sure that there are foreign transactions."""
        return self.foreign_count > 0 and not self.foreign_is_suspected

    @classmethod
    def hindered(cls) -> "models.QuerySet[Signer]":
        """Select those whose wait was seen lately. Nobody looks whether it is over where nothing is to be sent."""
        return cls.objects.exclude(wait=None).filter(wait_seen_at__gt=Now() - SEEN).order_by("pk")


# A final transaction counts as at least this fraction (1/4) of its maximum cost. Honest transactions rarely cost less
# than that.
_LEAST_PART = 4

GWEI = 10**9
# Maximum value of a column, so that a thousand can be added up. No currency has that much.
_MOST_GWEI = 2**53


def in_gwei(wei: int) -> int:
    """Return an amount in gwei, rounded up."""
    return min(_MOST_GWEI, -(-wei // GWEI))


class TransactionState(models.TextChoices):
    PENDING = "PENDING"  # its nonce is reserved; it is signed and broadcast, or about to be
    MINED = "MINED"
    CONFIRMED = "CONFIRMED"  # mined as deep as the chain's `confirmations` require
    FINAL = "FINAL"  # mined in a final block; nothing can change any more
    DISPLACED = "DISPLACED"  # its nonce was used by a transaction that isn't ours


# States in which the transaction may still take effect.
LIVE_STATES = (TransactionState.PENDING, TransactionState.MINED)
# States in which its batches show the transaction's cost as spent.
SPENT_STATES = (TransactionState.CONFIRMED, TransactionState.FINAL)
# States that the chain can still change.
WATCHED_STATES = (*LIVE_STATES, TransactionState.CONFIRMED)


class FailureCause(models.TextChoices):
    """Why a mined transaction failed."""

    OUT_OF_GAS = "out_of_gas"
    OUTDATED = "outdated"  # after its simulation, a reorganisation has changed what it rests on
    REVERTED = "reverted"  # for any other reason


class Transaction(models.Model):
    """One nonce of a signer: its purpose and its state. Its signed versions compete for the nonce."""

    signer = models.ForeignKey(Signer, models.PROTECT, related_name="transactions")
    nonce = models.PositiveBigIntegerField()
    to = models.CharField(max_length=42, blank=True)  # EIP-55; empty if it creates a contract
    data = models.BinaryField()
    gas_limit = models.PositiveBigIntegerField()
    # Wei in addition to the gas, on rollups. Before the receipt, an estimate with a margin.
    data_fee = Uint256Field(default=0)
    # The expected data fee. It counts again if a reorganisation removes the transaction.
    expected_data_fee = Uint256Field(default=0)
    # Queries that it is sent for; empty for the operator's own transactions.
    queries = models.ManyToManyField(Query, related_name="transactions")
    # Queries of which it proves only a part of the facts.
    continued = models.ManyToManyField(Query, related_name="continued_by")
    # Blocks whose headers it carries.
    accumulates = models.ManyToManyField(Block, related_name="accumulating_transactions")
    extends = models.ForeignKey(  # the registry whose trust it extends to further blocks
        FactsRegistry, models.SET_NULL, null=True, related_name="extending_transactions"
    )
    state = models.CharField(max_length=10, choices=TransactionState.choices, default=TransactionState.PENDING)
    created_at = models.DateTimeField(default=timezone.now)
    spent_at = models.DateTimeField(default=timezone.now, db_index=True)  # when it was reserved, or seen in a block
    error = WaitField(null=True, blank=True)  # the last error
    pruned_at = models.DateTimeField(null=True)  # when `data`, and `raw` of its versions, were emptied

    # Fields of the mined version.
    hash = models.CharField(max_length=66, blank=True)
    block_number = models.PositiveBigIntegerField(null=True)
    block_hash = models.CharField(max_length=66, blank=True)
    succeeded = models.BooleanField(null=True)
    # Empty if it didn't fail, or if an earlier version stored it. While it is pending: OUTDATED if a reorganisation has
    # come after its simulation.
    failure = models.CharField(max_length=10, choices=FailureCause.choices, null=True)  # noqa: DJ001 (SQLite copies no table for it)
    gas_used = models.PositiveBigIntegerField(default=0)
    # The expected gas (`proving.packing.gas`), with which nodes' later estimates are compared. 0 if unknown.
    expected_gas = models.PositiveBigIntegerField(default=0, db_default=0)
    gas_price = Uint256Field(default=0)  # effective, in wei per gas
    # `reserved`, rounded up to gwei, so that a database can add it up.
    reserved_gwei = models.BigIntegerField(default=0)

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
        """Return the hashes of the signed versions, the newest last."""
        versions = sorted(self.versions.all(), key=lambda version: version.pk)
        return [version.hash for version in versions if version.hash]

    @property
    def newest(self) -> "SignedTransaction":
        """Return the version that was reserved last among the signed versions, or among all if none is signed."""
        return max(self.versions.all(), key=lambda version: (bool(version.hash), version.pk))

    @property
    def latest_hash(self) -> str:
        """Return the hash of the mined version, or else of the newest version. Empty if none is signed yet."""
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
        is_signed = all(version.hash for version in self.versions.all())
        if error := self.error or (None if is_signed else self.signer.signing_problem):
            return wait("transaction_under_way", transaction=self.label, reason=error)
        return wait("transaction_pending" if self.latest_hash else "transaction_unsigned", transaction=self.label)

    @property
    def gas(self) -> int:
        """Return the used gas, or the maximum gas that it can still use."""
        if self.state == TransactionState.DISPLACED:
            return 0
        if self.state != TransactionState.PENDING:
            return self.gas_used
        proving = (version.gas for version in self.versions.all() if not version.is_cancellation)
        return max(proving, default=self.gas_limit)

    @property
    def cost(self) -> int:
        """Return the cost in wei, or the maximum that it can still cost. Any of its versions may be mined."""
        if self.state == TransactionState.DISPLACED:
            return 0
        if self.state != TransactionState.PENDING:
            return self.gas_used * self.gas_price + self.data_fee
        return self.most_for_gas + self.data_fee

    @property
    def most_for_gas(self) -> int:
        """Return the maximum cost of its gas, in wei."""
        return max((version.gas * version.max_fee_per_gas for version in self.versions.all()), default=0)

    @property
    def reserved(self) -> int:
        """Return the wei that count against daily limits.

        A broadcast transaction may be mined even if a node says that another transaction used its nonce. A node may
        also call it final too early, or report a wrong cost. So at least a part of its maximum cost always counts.
        """
        most = self.most_for_gas + max(self.data_fee, self.expected_data_fee)
        if self.state in {TransactionState.PENDING, TransactionState.DISPLACED}:
            return most
        return max(self.cost, most // _LEAST_PART if self.state == TransactionState.FINAL else most)

    @property
    def was_taken(self) -> bool:
        """Return whether a node took a version of it."""
        return any(version.broadcast_at for version in self.versions.all())

    def reserve(self) -> None:
        """Set `reserved_gwei` from `reserved`. Call it after each change of versions or state."""
        self.reserved_gwei = in_gwei(self.reserved)


class Share(models.Model):
    """One batch's part of a transaction's cost. Before the transaction is mined, its part of the maximum cost."""

    transaction = models.ForeignKey(Transaction, models.CASCADE, related_name="shares")
    batch = models.ForeignKey(Batch, models.CASCADE, related_name="shares")
    gas = models.PositiveBigIntegerField()
    wei = Uint256Field()
    # Its part of `Transaction.reserved_gwei`. It counts against the user's limit.
    reserved_gwei = models.BigIntegerField(default=0, db_default=0)
    # Its part of the transaction's gas limit. It is decided when the transaction is stored, so that later events move
    # no cost from one batch to another.
    weight = models.PositiveBigIntegerField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["transaction", "batch"], name="one_share_per_batch")]

    def __str__(self) -> str:
        return f"{self.gas} gas of {self.transaction_id} for {self.batch_id}"


class SignedTransaction(models.Model):
    """One version of a transaction. Its fields are reserved first, then signed, and stored before they are broadcast.

    A retry signs exactly these fields, or broadcasts exactly these bytes.
    """

    transaction = models.ForeignKey(Transaction, models.CASCADE, related_name="versions")
    hash = models.CharField(max_length=66, unique=True, null=True)  # noqa: DJ001 (unique); null until it is signed
    raw = models.BinaryField()  # the signed bytes; empty until it is signed, and after pruning
    max_fee_per_gas = Uint256Field()  # wei
    max_priority_fee_per_gas = Uint256Field()  # wei
    gas_limit = models.PositiveBigIntegerField(null=True)  # null: the transaction's
    # True if the version only uses up the nonce, because the transaction isn't needed any more.
    is_cancellation = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now)
    broadcast_at = models.DateTimeField(null=True)
    refused_at = models.DateTimeField(null=True)  # when nodes refused the last broadcast; null: they took it

    def __str__(self) -> str:
        return self.hash or f"a version of {self.transaction_id} that isn't signed yet"

    @classmethod
    def mined_cancellations(cls, transaction: str = "") -> models.Exists:
        """Select transactions whose cancellation was mined. `transaction` is the lookup path to the transaction."""
        pk, tx_hash = (transaction, f"{transaction}__hash") if transaction else ("pk", "hash")
        outer = {"transaction": models.OuterRef(pk), "hash": models.OuterRef(tx_hash)}
        return models.Exists(cls.objects.filter(**outer, is_cancellation=True))

    @property
    def gas(self) -> int:
        """Return the gas limit."""
        return self.transaction.gas_limit if self.gas_limit is None else self.gas_limit


class StopCode(models.TextChoices):
    """The reason for a stop of sending. Its label is a sentence for people."""

    OPERATOR = "operator", ""
    NOT_BELIEVED = "not_believed", "Nodes repeatedly report impossible states of the signer's transactions."


class Stop(models.Model):
    """A stop of sending (see `proving.stops`), for a whole destination, one connection, or one signer."""

    chain_id = models.PositiveBigIntegerField()  # the destination
    # The connection's source chain. 0 if the stop isn't about a connection.
    source_chain_id = models.PositiveBigIntegerField(default=0)
    signer = models.CharField(max_length=42, blank=True)  # EIP-55; empty if the stop isn't about a signer
    code = models.CharField(max_length=20, choices=StopCode.choices, default=StopCode.OPERATOR)
    reason = models.CharField(max_length=200, blank=True)  # the operator's sentence, which users see
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
        """Return the wait for this stop to end."""
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

    @property
    def sentence_for_operators(self) -> str:
        """Return the sentence with who stopped, which users don't see."""
        sentence = self.wait.for_operators
        return f"{sentence.rstrip('.')}. By {self.by}." if self.code == StopCode.OPERATOR else sentence


class ChainHead(models.Model):
    """A chain's head when a worker last saw it. Pages count confirmations from it without asking a chain."""

    chain_id = models.PositiveBigIntegerField(primary_key=True)
    number = models.PositiveBigIntegerField()
    final = models.PositiveBigIntegerField()  # the newest final block
    seen_at = models.DateTimeField()  # when a node first reported this newest block
    gas_limit = models.PositiveBigIntegerField(db_default=0, default=0)  # of its block; 0: not known
    gas_prices = models.CharField(
        max_length=20, db_default="", default=""
    )  # the record in `chains.prices`; "": the first
    gas_prices_at = models.DateTimeField(null=True)  # when that record replaced another one
    gas_scale = models.FloatField(db_default=1, default=1)  # `GasPrices.scale`, as measured
    timestamp = models.PositiveBigIntegerField(db_default=0, default=0)  # of its block; 0: not known
    final_timestamp = models.PositiveBigIntegerField(null=True)  # null: no node reports a final block
    # The coming fork: its time `at`, the number of `nodes` that tell it, and whether it is `known`.
    fork = models.JSONField(null=True)

    def __str__(self) -> str:
        return f"block {self.number} of chain {self.chain_id}"


class ChainWatch(models.Model):
    """A worker's last observation of a configured chain. `/healthz` shows it without asking a chain."""

    chain_id = models.PositiveBigIntegerField(primary_key=True)
    due_at = models.DateTimeField(null=True, blank=True, db_index=True)  # when to observe it again; null means now
    looked_at = models.DateTimeField(null=True)
    timestamp = models.PositiveBigIntegerField(null=True)  # time of the newest seen block, in unix seconds
    number = models.PositiveBigIntegerField(null=True)  # number of the newest seen block
    seen_at = models.DateTimeField(null=True)  # when a node last reported that block
    final = models.PositiveBigIntegerField(null=True)  # the newest final block, if nodes report one
    gas_price = Uint256Field(null=True)  # type: ignore[misc]  # wei, for a destination: base fee plus priority fee
    keeps_hashes = models.BooleanField(null=True)  # True if its state has a history of block hashes (EIP-2935)
    # For a source: when it was last measured how far back its nodes prove, its head then, and the oldest block that one
    # proved. null: not measured yet, or none proved any.
    proofs_measured_at = models.DateTimeField(null=True)
    measured_head = models.PositiveBigIntegerField(null=True)
    oldest_provable = models.PositiveBigIntegerField(null=True)
    # Each node has its `host`, and its own `oldest`, which is null if the node proved none.
    proving_nodes = models.JSONField(default=list, db_default=[])
    # Set for destinations: the signers' balances in wei by address, as decimal digits, and the wei that count against
    # the daily limit.
    balances = models.JSONField(default=dict, null=True)
    # Its resting nodes: host, problem and `since`, see `proving.health.chain_watch`.
    resting_nodes = models.JSONField(default=list, db_default=[])
    spent_in_day = Uint256Field(null=True)  # type: ignore[misc]  # the field's types don't include None

    def __str__(self) -> str:
        return f"chain {self.chain_id}"

    @property
    def proves_back(self) -> int | None:
        """Return the number of blocks below the head of which a node proves accounts, at least. None: of none."""
        if self.measured_head is None or self.oldest_provable is None:
            return None
        return self.measured_head - self.oldest_provable


def new_problem_id() -> str:
    return f"problem_{ULID()}"


class Problem(DueRow):
    """A problem, from when it was first seen until the operator's webhook was told of its end.

    An observer stores it where it sees it (`proving.health.stored_problems`). Problems that are computed have a row
    for their messages. The row is due when a message must be sent.
    """

    id = models.CharField(primary_key=True, max_length=40, default=new_problem_id)
    key = models.CharField(max_length=250)  # the code, the values and maybe a hash of the cause
    code = models.CharField(max_length=40)  # a `proving.health.problem_kinds.ProblemKind`
    sentence = models.TextField(blank=True)  # as it was first seen, for all messages
    values = models.JSONField(default=dict)
    # The observer (a kind of lane). Empty: the problem is computed, or version 0.4.0 has stored it.
    seen_by = models.CharField(max_length=20, blank=True, db_default="", default="")
    chain_id = models.PositiveBigIntegerField(db_default=0, default=0)  # 0: not of one chain
    # The sentences for operators and for everybody, as it was last seen. `shown` is empty while it isn't seen.
    shown = models.TextField(blank=True, db_default="", default="")
    public = models.TextField(blank=True, db_default="", default="")
    began_at = models.DateTimeField()
    seen_at = models.DateTimeField()  # last
    absent_since = models.DateTimeField(null=True)  # when it was first missing; null: it was there at the last check
    ended_at = models.DateTimeField(null=True)
    is_told = models.BooleanField(default=False)  # the message of its beginning was delivered, or given up

    class Meta:
        db_table = "proving_problemreport"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["key"], condition=models.Q(ended_at=None), name="one_open_report_of_each_problem"
            )
        ]

    def __str__(self) -> str:
        return self.key

    @classmethod
    def seen_lately(cls) -> "models.QuerySet[Problem]":
        """Select the problems that an observer sees."""
        return cls.objects.filter(ended_at=None, seen_at__range=(Now() - SEEN, Now() + SEEN)).exclude(shown="")


class AttesterWatch(models.Model):
    """The last answers of a configured connection's attesters. Workers ask them even without work."""

    PERIOD = timedelta(minutes=2)  # between two rounds; each may add a row to every attester's database
    STALE = 3 * PERIOD  # the age from which answers say little about the present
    LONGEST_ROUND = timedelta(seconds=30)  # from asking to the stored answers; then it has failed

    source_chain_id = models.PositiveBigIntegerField()
    destination_chain_id = models.PositiveBigIntegerField()
    asked_at = models.DateTimeField(null=True)  # set by a worker before it asks; null: they are to be asked now
    answered_at = models.DateTimeField(null=True)
    block = models.PositiveBigIntegerField(null=True)  # the source chain's block that they were asked about
    answers = models.JSONField(default=list)  # made by `proving.health.attester_checks`, in the order of chains.toml

    class Meta:
        verbose_name_plural = "attester watches"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["destination_chain_id", "source_chain_id"], name="one_watch_per_connection")
        ]

    def __str__(self) -> str:
        return f"attesters of chain {self.source_chain_id} for chain {self.destination_chain_id}"


class BeaconAnchor(models.Model):
    """A beacon block whose root a source chain's header has, with its state's summaries. Jumps begin there.

    It is verified when it is stored, and each time it is read (`proving.paths.beacon_fetching`).
    """

    chain_id = models.PositiveBigIntegerField()
    root = models.CharField(max_length=66)  # the beacon block's root
    slot = models.PositiveBigIntegerField()
    proposer = models.PositiveBigIntegerField()
    parent_root = models.CharField(max_length=66)
    state_root = models.CharField(max_length=66)
    body_root = models.CharField(max_length=66)
    summaries = models.BinaryField()  # 64 bytes each
    branch = models.BinaryField()  # from the root of the list of summaries to the state root
    used_at = models.DateTimeField(default=timezone.now, db_index=True)  # exact to a day

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["chain_id", "root"], name="one_anchor_per_beacon_block")
        ]

    def __str__(self) -> str:
        return f"slot {self.slot} of the beacon chain of chain {self.chain_id}"


class JumpLeavesKind(models.TextChoices):
    # A period of the beacon chain: for each slot the root of its block, or of the block before, in 32 bytes.
    PERIOD = "period"
    EPOCH = "epoch"  # an epoch before the Merge: for each block its hash and its total difficulty, 32 bytes each
    # The state after the beacon block of a slot: the roots of the last slots, by their places in a period.
    STATE = "state"


class JumpLeaves(DueRow):
    """The leaves of a tree through which jumps to old blocks lead. The row is due until the leaves are fetched."""

    chain_id = models.PositiveBigIntegerField()
    kind = models.CharField(max_length=6, choices=JumpLeavesKind.choices)
    number = models.PositiveIntegerField()
    # For a period before Capella, the root of its state roots follows the leaves; for a state, their root's branch.
    content = models.BinaryField(default=b"")
    is_complete = models.BooleanField(default=False)
    # A sentence that says why they could not be fetched.
    problem = models.TextField(blank=True, db_default="", default="")
    used_at = models.DateTimeField(default=timezone.now, db_index=True)  # exact to a day

    class Meta:
        verbose_name_plural = "jump leaves"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["chain_id", "kind", "number"], name="one_row_of_leaves_per_tree")
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.number} of chain {self.chain_id}"


class Lane(models.Model):
    """A part of the work that one worker at a time does (see `proving.working.lanes`)."""

    name = models.CharField(max_length=60, primary_key=True)
    token = models.CharField(max_length=32, blank=True)  # token of the worker that holds the lane; empty if none does
    until = models.DateTimeField(null=True)  # when another worker may take the lane, unless it is renewed
    advanced_at = models.DateTimeField(null=True)  # the last write of its work, which no renewal counts as

    def __str__(self) -> str:
        return self.name


class WorkerHeartbeat(models.Model):
    """A running worker's sign of life, by the database's clock. A killed worker stops renewing it."""

    worker = models.CharField(max_length=100, primary_key=True)
    started_at = models.DateTimeField()
    beat_at = models.DateTimeField(db_index=True)
    has_old_chains = models.BooleanField(default=False, db_default=False)  # chains.toml was changed after its start
    # The methods that nodes don't answer in time, made by `proving.health.chain_watch`.
    unanswered = models.JSONField(default=list, db_default=[])

    # Time without a heartbeat after which a worker counts as dead.
    SILENCE: ClassVar[timedelta] = timedelta(seconds=20)

    def __str__(self) -> str:
        return self.worker

    @classmethod
    def running(cls) -> "models.QuerySet[WorkerHeartbeat]":
        """Select the running workers. A heartbeat in the future comes from a wrong clock, and doesn't count."""
        return cls.objects.filter(beat_at__gt=Now() - cls.SILENCE, beat_at__lt=Now() + cls.SILENCE)
