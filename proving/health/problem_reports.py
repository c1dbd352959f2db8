"""Messages to the operator's webhook (`OPERATOR_WEBHOOK_URL`) when a problem of `/healthz` begins, and when it ends.

The worker that holds the lane stores problems as `ProblemReport`, and sends their messages. If it is killed between
sending and storing, the message is sent again with the same `webhook-id`. So a receiver gets each at least once.

While the database doesn't answer, nobody can hold a lane. Each worker then tells so by itself, with an id that all
workers have read before, unless one has just started (`OutageWatch`). These messages are in memory alone.
"""

import json
import logging
import re
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256

from django.conf import settings
from django.db.models import F, Q
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from chains import bounded_http
from chains.bounded_http import Failed, HttpRequest
from config.database import due_rows
from proving.health import findings
from proving.health.findings import Problem, Severity
from proving.models import SEEN, ProblemReport, new_problem_id
from proving.webhooks.delivery import TOTAL_SECONDS, signed_headers
from proving.working.lanes import HeldLane
from queries import clock, webhooks

logger = logging.getLogger(__name__)

# A problem is told when it was first seen this long ago. It ends when it wasn't seen for longer than a node rests, so a
# problem that comes and goes is one.
_HELD, _ABSENT = timedelta(seconds=30), SEEN
# The codes of problems with different causes. Each cause is reported, although the subject stays the same.
_WITH_CAUSES = frozenset(
    {
        *("storage", "chain_unavailable", "wrong_history", "no_proofs", "node_fails", "node_doubtful"),
        *("signer_unreadable", "signer_waits", "signer_not_signing", "receipt_unusable", "foreign_transactions"),
        *("registry_refused", "transactions_fail"),
    }
)
# Maximum causes of a problem that are told. A node may report new ones for ever.
_MOST_CAUSES = 3
# Numbers change while a cause stays. An HTTP status, and a code in parentheses, tell causes apart.
_AMOUNT = re.compile(r"(?i)(?<![\w(-])(?<!status )(0x)?[0-9a-f]*\d[0-9a-f.,-]*")
# First and longest pause between two attempts, in seconds.
_FIRST_PAUSE, _LONGEST_PAUSE = 5, 600
# Maximum messages of a turn, which are sent at the same time.
_MESSAGES = 8
_AWAY = f"The database has not answered a worker for {_HELD.total_seconds():.0f} s, or accepts no writes."


# --- Messages ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProblemMessage:
    id: str
    body: str


def _message(
    problem_id: str,
    problem: Problem,
    severity: Severity,
    began_at: datetime,
    ended_at: datetime | None,
    **more: object,
) -> ProblemMessage:
    """Return the message of a problem's beginning, or of its end. It is the same at each attempt."""
    kind = "ended" if ended_at else "began"
    data = {
        "id": problem_id,
        "code": problem.code,
        "severity": severity,
        "problem": problem.sentence,
        "values": problem.values,
        "beganAt": began_at.isoformat(),
        "endedAt": ended_at.isoformat() if ended_at else None,
        **more,
    }
    body = {"type": f"problem.{kind}", "timestamp": (ended_at or began_at).isoformat(), "data": data}
    return ProblemMessage(f"{problem_id}_{kind}", json.dumps(body))


def _deliver(messages: Sequence[ProblemMessage]) -> list[bool]:
    """Send the messages at the same time. Return for each whether the receiver took it."""
    # The operator chose the address, so any is allowed. No redirect is followed, and nothing of the answer is read.
    seconds = min(TOTAL_SECONDS, settings.LEASE_SECONDS / 2)
    requests = [
        HttpRequest(
            settings.OPERATOR_WEBHOOK_URL,
            message.body.encode(),
            max_bytes=0,
            silence_seconds=seconds,
            total_seconds=seconds,
            read_statuses=(),
            headers=signed_headers(message.id, message.body, [settings.OPERATOR_WEBHOOK_SECRET]),
        )
        for message in messages
    ]
    return [_is_taken(reply) for reply in bounded_http.send_all(requests)]


def _is_taken(reply: bounded_http.HttpReply | Failed) -> bool:
    if isinstance(reply, Failed):
        logger.warning("the operator's webhook %s", reply)
        return False
    if not 200 <= reply.status < 300:
        logger.warning("the operator's webhook %s", reply.status_text)
        return False
    return True


# --- Problems in the database -----------------------------------------------------------------------------------------


def report(lane: HeldLane) -> None:
    """Store which problems began and ended, and send the messages that are due."""
    problems: dict[str, Problem] = {}
    found = findings.findings()
    for problem in (*found.problems, *(notice for notice in found.notices if notice.code)):
        problems.setdefault(_key(problem), problem)
    lane.write(partial(_note, problems))
    due = list(due_rows.due(ProblemReport.objects.all()).order_by("due_at")[:_MESSAGES])
    for row, is_taken in zip(due, _deliver(_next_messages(due)), strict=True):
        lane.write(partial(_note_attempt, row, is_taken=is_taken))


def _subject(key: str) -> str:
    """Return a key without the cause."""
    return re.sub(" [0-9a-f]{16}$", "", key)


def _key(problem: Problem) -> str:
    """Return the code, the subject, and the cause if several are possible, in whatever order it names nodes."""
    key = f"{problem.code} {json.dumps(problem.values)}"
    if problem.code not in _WITH_CAUSES:
        return key
    parts = re.split(r"[:;] ", problem.sentence.rstrip("."))
    cause = " ".join(sorted(_AMOUNT.sub("", part) for part in parts))
    return f"{key} {sha256(cause.encode()).hexdigest()[:16]}"


def _note(problems: Mapping[str, Problem]) -> None:
    unfinished = ProblemReport.objects.filter(ended_at=None).exclude(code=findings.DATABASE_UNAVAILABLE)
    rows: dict[str, list[ProblemReport]] = {}
    for row in unfinished:
        rows.setdefault(_subject(row.key), []).append(row)
    new: list[ProblemReport] = []
    for key, problem in problems.items():
        before = rows.get(_subject(key), [])
        told = [row for row in before if row.is_told]
        if len(told) < _MOST_CAUSES and all(row.key != key for row in before):
            # The problem is as old as its first cause, unless that was told.
            began_at = Now() if told or not before else min(row.began_at for row in before)
            new.append(ProblemReport(key=key, began_at=began_at, seen_at=Now(), **problem._asdict()))
    ProblemReport.objects.bulk_create(new)
    # A cause that was told ends with its problem.
    going_on = [row.pk for key in problems for row in rows.get(_subject(key), [])]
    unfinished.filter(pk__in=going_on, is_told=False).exclude(key__in=problems).delete()
    is_present = Q(key__in=problems) | Q(pk__in=going_on)
    present, absent = unfinished.filter(is_present), unfinished.exclude(is_present)
    if any(problem.code == "storage" for problem in problems.values()):
        # `findings` leaves these out then, although they may go on.
        absent = absent.exclude(code__in=findings.STORED)
    present.update(seen_at=Now(), absent_since=None)
    absent.filter(absent_since=None).update(absent_since=Now())
    # A time in the future was stored by a clock that was ahead.
    recent = (Now() - _HELD, Now() + _HELD)
    present.filter(is_told=False, due_at=None).exclude(began_at__range=recent).update(due_at=Now())
    ended = absent.exclude(absent_since__range=(Now() - _ABSENT, Now() + _ABSENT))
    ended.filter(is_told=False, due_at=None).delete()
    ended.update(ended_at=F("seen_at"), due_at=Coalesce("due_at", Now()))


def _next_messages(due: Iterable[ProblemReport]) -> list[ProblemMessage]:
    # The problems that are known together tell whether a chain has a signer left.
    problems = {row.pk: Problem(row.code, row.sentence, row.values) for row in ProblemReport.objects.order_by("pk")}
    critical = findings.critical([*problems.values()])
    messages: list[ProblemMessage] = []
    for row in due:
        problem, ended_at = problems[row.pk], row.ended_at if row.is_told else None
        severity = Severity.CRITICAL if problem in critical else Severity.WARNING
        messages.append(_message(row.pk, problem, severity, row.began_at, ended_at))
    return messages


def _note_attempt(row: ProblemReport, *, is_taken: bool) -> None:
    this = ProblemReport.objects.filter(pk=row.pk)
    since = row.ended_at if row.is_told and row.ended_at else row.began_at
    if not is_taken and clock.earliest() - since < webhooks.RETRIED:
        pause = due_rows.backoff(row.attempts, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        this.update(attempts=F("attempts") + 1, due_at=Now() + pause, failing_since=Coalesce("failing_since", Now()))
    elif row.is_told:
        this.delete()
    else:
        this.update(is_told=True, attempts=0, failing_since=None, due_at=Now() if row.ended_at else None)


# --- A database that doesn't answer -----------------------------------------------------------------------------------

# Seconds without an answer after which the database doesn't answer any more. A worker asks it every five seconds.
_ANSWERS_SECONDS = 10


class OutageWatch:
    """A worker's watch over its database, in a thread that doesn't use the database.

    It counts the seconds in which it runs itself, so a worker that was paused sees no outage.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._silent = self._answering = 0  # seconds
        self._is_new = True
        self._told_id = ""  # of the last outage, until the database has forgotten it
        self._next_id = ""
        self._known: list[dict[str, object]] = []
        self._outage: tuple[str, datetime] | None = None
        self._messages = deque[tuple[ProblemMessage, datetime]]()
        self._pause = self._failures = 0

    def note_answer(self) -> None:
        """Note that the database answers, and read what an outage would tell. A worker calls this at each heartbeat.

        A worker that starts, or whose outage has ended, takes the id away, so that no two outages have the same.
        """
        rows = ProblemReport.objects.filter(ended_at=None)
        of_outages = rows.filter(code=findings.DATABASE_UNAVAILABLE)
        if self._is_new or self._told_id:
            (of_outages if self._is_new else of_outages.filter(pk=self._told_id)).delete()
        if not of_outages.exists():
            row = ProblemReport(
                key=findings.DATABASE_UNAVAILABLE, code=findings.DATABASE_UNAVAILABLE, began_at=Now(), seen_at=Now()
            )
            ProblemReport.objects.bulk_create([row], ignore_conflicts=True)
        stored = list(rows)
        with self._lock:
            self._is_new, self._told_id, self._silent = False, "", 0
            self._next_id = next((row.pk for row in stored if row.code == findings.DATABASE_UNAVAILABLE), "")
            self._known = [
                {"id": row.pk, "code": row.code, "problem": row.sentence, "values": row.values}
                for row in stored
                # One that may be over isn't told, though its end isn't told yet.
                if row.code != findings.DATABASE_UNAVAILABLE and row.absent_since is None
            ]

    def run(self, stopping: threading.Event) -> None:
        while not stopping.wait(1):
            try:
                self.tick()
            except Exception:
                logger.exception("the observation of the database failed")

    def tick(self) -> None:
        """Count a second, and send the first message if it is due."""
        self._count()
        self._pause -= 1
        if self._messages and self._pause <= 0:
            self._send()

    def _count(self) -> None:
        problem, now = Problem(findings.DATABASE_UNAVAILABLE, _AWAY), timezone.now()
        with self._lock:
            self._silent += 1
            self._answering = self._answering + 1 if self._silent < _ANSWERS_SECONDS else 0
            if self._outage is None and self._silent >= _HELD.total_seconds():
                self._outage = problem_id, began_at = self._next_id or new_problem_id(), now - _HELD
                self._messages.append(
                    (_message(problem_id, problem, Severity.CRITICAL, began_at, None, known=self._known), now)
                )
            elif self._outage and self._answering >= _HELD.total_seconds():
                self._told_id, began_at = self._outage
                self._messages.append((_message(self._told_id, problem, Severity.CRITICAL, began_at, now), now))
                self._outage, self._next_id = None, ""

    def _send(self) -> None:
        message, since = self._messages[0]
        if _deliver([message])[0] or timezone.now() - since >= webhooks.RETRIED:
            self._messages.popleft()
            self._failures = self._pause = 0
        else:
            pause = due_rows.backoff(self._failures, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
            self._pause, self._failures = int(pause.total_seconds()), self._failures + 1
