"""Messages to the operator's webhook (`OPERATOR_WEBHOOK_URL`) when a problem of `/healthz` begins, and when it ends.

The worker that holds the lane stores problems as `Problem`, and sends their messages. If it is killed between
sending and storing, the message is sent again with the same `webhook-id`. So a receiver gets each at least once.

While the database doesn't answer, nobody can hold a lane, and nothing is sent.
"""

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from django.conf import settings
from django.db.models import F, Q
from django.db.models.functions import Coalesce, Now

from chains import bounded_http
from chains.bounded_http import Failed, HttpRequest
from config.database import due_rows
from proving.health import current_problems, stored_problems
from proving.health.current_problems import SeenProblem
from proving.health.problem_kinds import KIND_BY_CODE, SILENCES, ProblemKind, Severity
from proving.models import Problem
from proving.webhooks.delivery import TOTAL_SECONDS, signed_headers
from proving.working.lanes import HeldLane
from queries import clock, webhooks

logger = logging.getLogger(__name__)

# A problem is told when it was first seen this long ago.
_HELD = timedelta(seconds=30)
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
    problem: SeenProblem,
    severity: Severity,
    began_at: datetime,
    ended_at: datetime | None,
) -> ProblemMessage:
    """Return the message of a problem's beginning, or of its end. It is the same at each attempt."""
    kind = "ended" if ended_at else "began"
    data = {
        "id": problem_id,
        "code": problem.kind,
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
    found = current_problems.read()
    lane.write(partial(_note, [problem for problem in found.seen if problem.kind != ProblemKind.RISK]))
    due = list(due_rows.due(Problem.objects.all()).order_by("due_at")[:_MESSAGES])
    for row, is_taken in zip(due, _deliver(_next_messages(due)), strict=True):
        lane.write(partial(_note_attempt, row, is_taken=is_taken))


def _note(problems: Sequence[SeenProblem]) -> None:
    """Store the problems that nobody has stored, and make the messages of lasting ones due."""
    # `read` leaves some kinds out while others are seen, although they may go on.
    hidden = [kind for problem in problems if not problem.values for kind in SILENCES.get(problem.kind, ())]
    stored_problems.replace([problem for problem in problems if not problem.row], hidden=hidden)
    present = Q(seen_by="", absent_since=None) | Q(pk__in=[problem.row for problem in problems])
    # A time in the future was stored by a clock that was ahead.
    recent = (Now() - _HELD, Now() + _HELD)
    untold = Problem.objects.filter(present, ended_at=None, is_told=False, due_at=None)
    untold.exclude(began_at__range=recent).update(due_at=Now())


def _next_messages(due: Iterable[Problem]) -> list[ProblemMessage]:
    # The problems that are known together tell whether a chain has a signer left.
    problems = {
        row.pk: SeenProblem(KIND_BY_CODE[row.code], row.sentence, row.values)
        for row in Problem.objects.filter(code__in=[*KIND_BY_CODE]).order_by("pk")
    }
    critical = current_problems.critical([*problems.values()])
    messages: list[ProblemMessage] = []
    for row in due:
        problem, ended_at = problems[row.pk], row.ended_at if row.is_told else None
        severity = Severity.CRITICAL if problem in critical else Severity.WARNING
        messages.append(_message(row.pk, problem, severity, row.began_at, ended_at))
    return messages


def _note_attempt(row: Problem, *, is_taken: bool) -> None:
    this = Problem.objects.filter(pk=row.pk)
    since = row.ended_at if row.is_told and row.ended_at else row.began_at
    if not is_taken and clock.earliest() - since < webhooks.RETRIED:
        pause = due_rows.backoff(row.attempts, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        this.update(attempts=F("attempts") + 1, due_at=Now() + pause, failing_since=Coalesce("failing_since", Now()))
    elif row.is_told:
        this.delete()
    else:
        this.update(is_told=True, attempts=0, failing_since=None, due_at=Now() if row.ended_at else None)
