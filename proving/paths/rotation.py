"""Whose path comes next: one transaction at a time extends a registry's trust, so users take turns."""

from dataclasses import dataclass

from django.db.models import Max, QuerySet
from django.db.models.functions import Now

from proving.models import Transaction
from queries.models import Block

# By registry: its newest path, and the users who were given a turn since. A killed process forgets it.
_given: dict[int, tuple[int | None, frozenset[int | None]]] = {}


@dataclass(frozen=True)
class Rotation:
    registry: int  # id of its row
    newest: int | None  # id of the newest transaction that extended its trust
    given: frozenset[int | None]
    first: int | None  # id of the user whose turn it is
    is_anothers: bool  # not that of the block's user


def of_paths(registry: int, block: Block) -> Rotation:
    """Return whose turn it is of those who wait on the block's connection: whose last path is the longest ago."""
    sent = Transaction.objects.filter(extends=registry)
    newest = sent.aggregate(pk=Max("pk"))["pk"]
    since, given = _given.get(registry, (None, frozenset[int | None]()))
    if since != newest:
        given = frozenset()
    # Once between two paths: a user who can't pay has no more turns than the others, however many blocks wait.
    others = set(_waiting(block).order_by().values_list("turn_of", flat=True).distinct()) - given
    last = dict(sent.order_by().values_list("leads_to__turn_of").annotate(Max("pk")))
    first = min({block.turn_of_id, *others}, key=lambda user: last.get(user, 0))
    return Rotation(registry, newest, given, first, last.get(first, 0) != last.get(block.turn_of_id, 0))


def give(rotation: Rotation, block: Block) -> None:
    """Wake the block of the user whose turn it is. The turn counts, whatever the block does with it."""
    _given[rotation.registry] = (rotation.newest, rotation.given | {rotation.first})
    next_one = _waiting(block).filter(turn_of=rotation.first).order_by("queue_at").values_list("pk", flat=True)[:1]
    Block.objects.filter(pk__in=list(next_one)).update(due_at=Now(), queue_at=Now())


def _waiting(block: Block) -> QuerySet[Block]:
    return Block.objects.filter(
        destination_chain_id=block.destination_chain_id,
        source_chain_id=block.source_chain_id,
        waits_for_path=True,
        attempts=0,  # Others lack what a path takes.
        due_at__isnull=False,
    ).exclude(turn_of=None)
