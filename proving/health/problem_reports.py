"""Messages to the operator's webhook (`OPERATOR_WEBHOOK_URL`) when a problem of `/healthz` begins, and when it ends.

The worker that holds the lane stores problems as `ProblemReport`, and sends their messages. If it is killed between
sending and storing, the message is sent again with the same `webhook-id`. So a receiver gets each at least once.

While the database doesn't answer, nobody can hold a lane, and nothing is sent.
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256

from django.conf import settings
from django.db.models import F, Q
from django.db.models.functions import Coalesce, Now

from chains import bounded_http
from chains.bounded_http import Failed, HttpRequest
from config.database import due_rows
from proving.health import findings
from proving.health.findings import Problem, Severity
from proving.models import SEEN, ProblemReport
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
    unfinished = ProblemReport.objects.filter(ended_at=None)
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
