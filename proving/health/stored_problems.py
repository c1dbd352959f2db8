"""Problems as rows (`Problem`): each from when it was first seen until the operator's webhook was told of its end.

A worker stores what it sees in a short transaction, under the fence of its lane. So a worker that wakes up late ends
nothing.
"""

import json
import logging
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from hashlib import sha256

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Coalesce, Now

from proving.health.current_problems import SeenProblem
from proving.health.problem_kinds import ProblemKind
from proving.models import SEEN, Problem
from proving.working.lanes import HeldLane

logger = logging.getLogger(__name__)

# The kinds of problems with different causes. Each cause is a row of its own, although the subject stays the same.
_WITH_CAUSES = frozenset(
    {
        *(ProblemKind.STORAGE, ProblemKind.CHAIN_UNAVAILABLE, ProblemKind.WRONG_HISTORY, ProblemKind.NO_PROOFS),
        *(ProblemKind.NODE_FAILS, ProblemKind.NODE_DOUBTFUL, ProblemKind.SIGNER_UNREADABLE, ProblemKind.SIGNER_WAITS),
        *(ProblemKind.SIGNER_NOT_SIGNING, ProblemKind.RECEIPT_UNUSABLE, ProblemKind.FOREIGN_TRANSACTIONS),
        *(ProblemKind.REGISTRY_REFUSED, ProblemKind.TRANSACTIONS_FAIL),
    }
)
# Maximum causes of a problem that the operator's webhook is told of. A node may report new ones for ever.
_MOST_CAUSES = 3
# Maximum characters of a subject. A longer one is replaced by its hash.
_MOST_OF_SUBJECT = 200
# Numbers change while a cause stays. An HTTP status, and a code in parentheses, tell causes apart.
_AMOUNT = re.compile(r"(?i)(?<![\w(-])(?<!status )(0x)?[0-9a-f]*\d[0-9a-f.,-]*")


def replace(
    seen: Iterable[SeenProblem], *, seen_by: str = "", chain_id: int = 0, hidden: Iterable[ProblemKind] = ()
) -> None:
    """Store what an observer sees of a chain now. What it saw before, and sees no more, begins to end.

    Call it in a transaction under the observer's fence. Problems of the kinds `hidden` may go on unseen.
    """
    present = add(seen, seen_by=seen_by, chain_id=chain_id)
    own = Problem.objects.filter(ended_at=None, seen_by=seen_by, chain_id=chain_id)
    absent = own.exclude(pk__in=present).exclude(code__in=[*hidden])
    if absent.exists():
        absent.filter(absent_since=None).update(absent_since=Now(), shown="", public="")
        _end(absent)


def add(seen: Iterable[SeenProblem], *, seen_by: str, chain_id: int) -> list[str]:
    """Store problems that end unless they are seen again within their period. Return the keys of their rows.

    Call it in a transaction under the observer's fence.
    """
    problems = {_key(problem): problem for problem in reversed([*seen])}
    subjects = {_subject(key) for key in problems}
    unended = Problem.objects.filter(ended_at=None)
    own = Q(seen_by=seen_by, chain_id=chain_id)
    # Version 0.4.0 stores problems without an observer.
    of_nobody = Q(seen_by="", code__in={problem.kind for problem in problems.values()})
    alike = defaultdict[str, list[Problem]](list)
    for row in unended.filter(own | of_nobody).order_by("began_at", "pk"):
        if _subject(row.key) in subjects:
            alike[_subject(row.key)].append(row)
    new: list[Problem] = []
    words = dict[str, SeenProblem]()
    for key, problem in problems.items():
        before = alike[_subject(key)]
        told = [row for row in before if row.is_told]
        same = [row for row in before if row.key == key]
        if same or len(told) >= _MOST_CAUSES:
            words[(same or told)[-1].pk] = problem
            continue
        # The problem is as old as its first cause, unless that was told.
        began_at = Now() if told or not before else before[0].began_at
        row = Problem(
            key=key, code=problem.kind, sentence=problem.sentence, values=problem.values, began_at=began_at,
            seen_at=Now(), seen_by=seen_by, chain_id=chain_id,
        )  # fmt: skip
        new.append(_shown(row, problem))
        if not before:
            _log_later("a problem has begun: %s: %s", row)
    # A cause that was told ends with its problem.
    going_on = [row for rows in alike.values() for row in rows if row.is_told or row.pk in words]
    gone = [row.pk for rows in alike.values() for row in rows if row not in going_on]
    if gone:
        unended.filter(pk__in=gone).delete()
    # An earlier version, which runs next to this one, may have stored a row meanwhile.
    Problem.objects.bulk_create(new, ignore_conflicts=True)
    for row in going_on:
        row.seen_by, row.chain_id, row.seen_at, row.absent_since = seen_by, chain_id, Now(), None
        _shown(row, words.get(row.pk))
    columns = ["seen_by", "chain_id", "seen_at", "absent_since", "shown", "public"]
    Problem.objects.bulk_update(going_on, columns)
    return [row.pk for row in (*new, *going_on)]


def fade(lane: HeldLane) -> None:
    """Let problems begin to end that no observer has looked at within their period. The lane is of the house."""
    unended = Problem.objects.filter(ended_at=None).exclude(seen_by="")
    unseen = unended.filter(absent_since=None).exclude(seen_at__range=(Now() - SEEN, Now() + SEEN))

    def write() -> None:
        unseen.update(absent_since=Now(), shown="", public="")
        _end(unended)

    if unended.exists():
        lane.write(write)


def _end(rows: QuerySet[Problem]) -> None:
    """End the rows that have been absent for longer than a node rests. A message is due of each that was told."""
    # A problem that comes and goes is one.
    recent = (Now() - SEEN, Now() + SEEN)
    ended = list(rows.exclude(absent_since=None).exclude(absent_since__range=recent))
    of_ended = Problem.objects.filter(pk__in=[row.pk for row in ended])
    of_ended.filter(is_told=False, due_at=None).delete()
    of_ended.update(ended_at=F("seen_at"), due_at=Coalesce("due_at", Now()))
    for row in {_subject(row.key): row for row in ended}.values():
        _log_later("a problem has ended: %s: %s", row)


def _log_later(line: str, row: Problem) -> None:
    """Write a line when the transaction is committed. The caller may repeat it."""
    transaction.on_commit(partial(logger.warning, line, _subject(row.key), row.sentence))


def _shown(row: Problem, problem: SeenProblem | None) -> Problem:
    """Set the sentences that pages show. Those of a row that is computed are always computed again."""
    is_shown = problem is not None and row.seen_by
    row.shown, row.public = (problem.sentence, problem.public) if problem and is_shown else ("", "")
    return row


def _subject(key: str) -> str:
    """Return a key without the cause."""
    return re.sub(" [0-9a-f]{16}$", "", key)


def _key(problem: SeenProblem) -> str:
    """Return the code, the subject, and the cause if several are possible, in whatever order it names nodes."""
    subject = json.dumps(problem.values)
    if len(subject) > _MOST_OF_SUBJECT:
        subject = sha256(subject.encode()).hexdigest()
    key = f"{problem.kind} {subject}"
    if problem.kind not in _WITH_CAUSES:
        return key
    parts = re.split(r"[:;] ", problem.sentence.rstrip("."))
    cause = " ".join(sorted(_AMOUNT.sub("", part) for part in parts))
    return f"{key} {sha256(cause.encode()).hexdigest()[:16]}"
