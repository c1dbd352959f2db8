"""What is to be sent, and why it can't be."""

from collections.abc import Collection
from dataclasses import dataclass

from proving.models import LIVE_STATES, Signer, Transaction, TransactionState, proves_facts
from queries.models import Block, Query


class SignerBusy(Exception):
    """Another worker sends from this signer at this moment; it takes well under a second."""


class UnderWay(Exception):
    """A transaction that does the same was stored meanwhile."""


class CannotSend(Exception):
    """Nothing can be sent for now, such as at a low balance; the message is a sentence."""


class Stopped(CannotSend):
    """The operator has stopped the chain's signers."""


class TooDear(CannotSend):
    """At the present gas price the fees of these batches, or the limits of their users, don't suffice to their ends."""

    def __init__(self, sentence: str, batches: frozenset[str]) -> None:
        super().__init__(sentence)
        self.batches = batches


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
