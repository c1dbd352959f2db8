"""What is to be sent, and what becomes of it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from proving.models import LIVE_STATES, Signer, Transaction, TransactionState, proves_facts
from queries.models import Block, Query


@dataclass(frozen=True)
class Intent:
    """What to send. An empty `to` creates a contract.

    `queries` are the ids that it is for, `accumulates` is the block whose header it carries. With `extends`, the id of
    a registry, it extends that registry's trust to blocks that the queries need; it then proves facts only of the block
    that it accumulates, if it does. `leads_to` is the block for which it does so; the queries of others ride along.
    """

    to: str
    data: bytes
    queries: Collection[int] = ()
    accumulates: Block | None = None
    extends: int | None = None
    leads_to: Block | None = None
    continued: Collection[int] = ()
    """Of the queries, those of which more is proven by the next one."""

    def is_under_way(self, signer: Signer) -> bool:
        """Whether a stored one does the same. One at a time extends a registry, because each builds on the last."""
        # What another key has left behind may never be mined.
        extending = signer.transactions.filter(extends=self.extends, state=TransactionState.PENDING)
        if self.extends is not None and extending.exists():
            return True
        proving = Transaction.objects.filter(
            proves_facts("queries__block"), queries__in=self.proves(), state__in=LIVE_STATES
        )
        return proving.exists()

    def proves(self) -> Collection[int]:
        """Ids of the queries whose facts it proves. Of others it makes known their blocks, and proves nothing."""
        if self.extends is None:
            return self.queries
        here = Query.objects.filter(pk__in=self.queries, block=self.accumulates)
        return list(here.values_list("pk", flat=True))


@dataclass(frozen=True)
class Sent:
    """All of the intents, or the first ones where money doesn't suffice for the rest, in their order."""

    transactions: Sequence[Transaction]


@dataclass(frozen=True)
class SignerBusy:
    """Another worker sends from this signer at this moment; it takes well under a second."""


@dataclass(frozen=True)
class UnderWay:
    """A transaction that does the same was stored meanwhile."""


@dataclass(frozen=True)
class Refused:
    """Nothing of it can be sent for now, whoever pays: the operator has stopped the signers, or no block has room."""

    sentence: str


@dataclass(frozen=True)
class NotPaid:
    """At the present gas price the operator's money, the fees of these batches or the limits of their users don't
    suffice to their ends. What others ask for may be cheaper.
    """

    sentence: str
    batches: frozenset[str]


Unsent = SignerBusy | UnderWay | Refused | NotPaid
"""Nothing is stored of it."""
