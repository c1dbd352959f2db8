"""The kinds of problems: `ProblemKind`, what each stops, and which problem silences which.

The runbook explains each kind. A problem is critical if money is lost, or if all batches to a chain of value stand
still. Other problems, and all problems of test networks and sources, wait for the morning.
"""

from collections.abc import Mapping
from enum import Enum, StrEnum, auto
from typing import Self


class Severity(StrEnum):
    CRITICAL = "critical"
    WARNING = "warning"


class Reach(Enum):
    """Problems stop different parts of the work, and `proving.health.current_problems.critical` decides by that."""

    SERVICE = auto()
    STAGE = auto()  # a stage of the work
    CHAIN = auto()  # all batches to a chain
    SIGNER = auto()  # one signer of a chain
    URL = auto()  # one URL of a chain
    PART = auto()  # less than all batches to a chain
    NOTHING = auto()  # nothing: `/healthz` stays ok
    RISK = auto()  # nothing yet: `/healthz` shows it as a notice without a code, and has no message of it
    COMMAND = auto()  # nothing is reported: only `check_chains` looks


class ProblemKind(StrEnum):
    """The codes of problems, on which monitoring may rely."""

    reach: Reach

    def __new__(cls, code: str, reach: Reach) -> Self:
        kind = str.__new__(cls, code)
        kind._value_, kind.reach = code, reach
        return kind

    DATABASE_UNAVAILABLE = "database_unavailable", Reach.SERVICE
    CHAINS_FILE = "chains_file", Reach.SERVICE
    STORAGE = "storage", Reach.SERVICE
    NO_WORKER = "no_worker", Reach.SERVICE
    STANDSTILL = "standstill", Reach.STAGE
    CHAINS_FILE_CHANGED = "chains_file_changed", Reach.PART
    POOLER_LIMITS = "pooler_limits", Reach.PART
    CLOCK = "clock", Reach.PART
    CHAIN_UNAVAILABLE = "chain_unavailable", Reach.CHAIN
    WRONG_CHAIN = "wrong_chain", Reach.URL
    WRONG_HISTORY = "wrong_history", Reach.PART
    CHAIN_NOT_WATCHED = "chain_not_watched", Reach.PART
    HEAD_WENT_BACK = "head_went_back", Reach.PART
    NODE_SYNCING = "node_syncing", Reach.PART
    NO_PROOFS = "no_proofs", Reach.PART
    NODE_FAILS = "node_fails", Reach.PART
    NO_BEACON_NODE = "no_beacon_node", Reach.PART
    UNKNOWN_GAS_PRICES = "unknown_gas_prices", Reach.PART
    FORK_UNKNOWN = "fork_unknown", Reach.PART
    FORK_AHEAD = "fork_ahead", Reach.NOTHING
    FINALITY_STANDS = "finality_stands", Reach.NOTHING
    HISTORY_ENDS = "history_ends", Reach.PART
    SIGNER_UNFUNDED = "signer_unfunded", Reach.SIGNER
    SIGNER_UNREADABLE = "signer_unreadable", Reach.SIGNER
    SIGNER_WAITS = "signer_waits", Reach.CHAIN
    SIGNER_NOT_SIGNING = "signer_not_signing", Reach.SIGNER
    NONCE_GAP = "nonce_gap", Reach.PART
    FOREIGN_TRANSACTIONS = "foreign_transactions", Reach.CHAIN
    RECEIPT_UNUSABLE = "receipt_unusable", Reach.PART
    # One for which a worker has stopped the signer reaches the signer. Others reach nothing.
    NODE_DOUBTFUL = "node_doubtful", Reach.SIGNER
    SIGNING_STOPPED = "signing_stopped", Reach.PART
    CONNECTION_PAUSED = "connection_paused", Reach.PART
    SIGNER_PAUSED = "signer_paused", Reach.PART
    NO_REGISTRY = "no_registry", Reach.PART
    REGISTRY_REFUSED = "registry_refused", Reach.PART
    TRANSACTIONS_FAIL = "transactions_fail", Reach.PART
    CONNECTION_MISSING = "connection_missing", Reach.PART
    WEBHOOKS_FAILING = "webhooks_failing", Reach.NOTHING
    RISK = "risk", Reach.RISK
    NO_ERA_FILES = "no_era_files", Reach.COMMAND
    NAMES_UNAVAILABLE = "names_unavailable", Reach.COMMAND
    NOTHING_CONFIRMED = "nothing_confirmed", Reach.COMMAND
    TOO_FEW_ATTESTERS = "too_few_attesters", Reach.COMMAND

    @property
    def severities(self) -> tuple[Severity, ...]:
        """Return the severities that a problem of this kind may have."""
        harmless = {Reach.PART, Reach.NOTHING, Reach.RISK, Reach.COMMAND}
        return (Severity.WARNING,) if self.reach in harmless else (*Severity,)


KIND_BY_CODE: Mapping[str, ProblemKind] = {kind.value: kind for kind in ProblemKind}
SILENCES: Mapping[ProblemKind, frozenset[ProblemKind]] = {
    # A worker stores its heartbeats and its work, so nothing is known of either while nothing can be stored.
    ProblemKind.STORAGE: frozenset({ProblemKind.NO_WORKER, ProblemKind.STANDSTILL}),
    ProblemKind.REGISTRY_REFUSED: frozenset({ProblemKind.TRANSACTIONS_FAIL}),
    # Money for a signer whose key is stolen would go to the thief.
    ProblemKind.FOREIGN_TRANSACTIONS: frozenset({ProblemKind.SIGNER_UNFUNDED}),
}
"""For each kind the kinds that it silences. A problem with a subject silences only problems of that subject."""
