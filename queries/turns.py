"""In whose turns a block is worked on, and at which place there. `proving.worker.due` takes the turns.

A block of several users is worked on in the turns of the one for whom the fewest blocks are due: that is the user who
would get to it first. A user who joins takes it over only with fewer than the other, and each reconcile asks anew: it
can't be taken and then buried under thousands. A self-funded batch takes over no block from those who
don't.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Count, Q, QuerySet
from django.db.models.functions import Now

from database.chunks import chunks
from queries.models import Batch, Block, Query, Sender, open_queries

# How far apart the blocks of one batch stand: a later batch of the same user waits for the first few at most.
_PLACE = timedelta(seconds=0.5)
_MOST_TOGETHER = 64
_PER_STATEMENT = 500


def line_up(batch: Batch, queries: "QuerySet[Query]") -> None:
    """Make the blocks of a batch's admitted queries due, and give them places. Inside the caller's transaction."""
    user = batch.user_id
    blocks = Block.objects.filter(pk__in=queries.values("block"))
    if batch.is_self_funded:
        # Where something is paid for, a pause may be what keeps it from being sent again too soon: it isn't cut short,
        # and there is a look soon enough.
        paid_for = open_queries(blocks).filter(batch__sender=Sender.OPERATOR)
        blocks = blocks.exclude(pk__in=paid_for.values("block"), due_at__isnull=False)
    found = list(blocks.values_list("pk", "turn_of", "due_at"))
    wanted = {pk for pk, *_ in found}
    for_others = {pk: other for pk, other, due_at in found if due_at is not None and other not in {None, user}}
    mine = _due(user) + len(wanted) if for_others else 0
    nearer = {other for other in set(for_others.values()) if _due(other) <= mine}
    # Others' places stay as they are: nobody moves them back by asking for the same.
    kept = [pk for pk, other in for_others.items() if other in nearer]
    for chunk in chunks(kept, _PER_STATEMENT):
        Block.objects.filter(pk__in=chunk).update(due_at=Now())
    # Ever more share a place: a statement for each block of ten thousand would hold the database's lock for seconds.
    place, together = 0, 1
    pks = sorted(wanted.difference(kept))
    while place < len(pks):
        chunk = pks[place : place + together]
        Block.objects.filter(pk__in=chunk).update(turn_of=user, due_at=Now(), queue_at=Now() + place * _PLACE)
        place, together = place + together, min(2 * together, _MOST_TOGETHER)


@dataclass(frozen=True)
class Asking:
    """The users with open queries about a block, and the kinds of these queries."""

    users: Mapping[str, Collection[int]]
    """Their ids, by the sender of their batches."""
    steps: Collection[tuple[str, bool]]
    """At which these are, each with whether it asks for an account, and not for the header."""
    names_times: bool
    """True if some name it by a time."""

    @property
    def in_turns(self) -> Collection[int]:
        """Return the users in whose turns it may be worked on.

        Users who pay themselves are only there where there are no others, for whom is sent.
        """
        return self.users.get(Sender.OPERATOR) or self.users.get(Sender.SELF) or ()


def asking(blocks: Collection[Block]) -> list[Asking]:
    """Return who asks for each of the blocks."""
    users: dict[int, dict[str, dict[int, None]]] = {block.pk: defaultdict(dict) for block in blocks}
    steps: dict[int, set[tuple[str, bool]]] = {block.pk: set() for block in blocks}
    with_times: set[int] = set()
    rows = open_queries(blocks).order_by().annotate(of_account=~Q(address=""), names_time=Q(timestamp__isnull=False))
    columns = ("block", "batch__user", "batch__sender", "step", "of_account", "names_time")
    for block, user, sender, step, of_account, names_time in rows.values_list(*columns).distinct():
        users[block][sender][user] = None
        steps[block].add((step, of_account))
        if names_time:
            with_times.add(block)
    return [Asking(users[block.pk], steps[block.pk], block.pk in with_times) for block in blocks]


def whose(block: Block, users: Collection[int]) -> int | None:
    """Return whose turns the block takes from now on: of `users`, the one with the fewest other blocks due."""
    if len(users) < 2:
        return next(iter(users), block.turn_of_id)
    due = Block.objects.filter(turn_of__in=users, due_at__isnull=False).exclude(pk=block.pk)
    counted = dict(due.order_by().values_list("turn_of").annotate(Count("pk")))
    # Where it is, if others have as many.
    return min(users, key=lambda user: (counted.get(user, 0), user != block.turn_of_id))


def _due(user: int | None) -> int:
    """Count the blocks that are due for a user, now or later."""
    return Block.objects.filter(turn_of=user, due_at__isnull=False).count()
