"""Counters of workers: the runs of their jobs, and events on chains."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from django.db import transaction
from prometheus_client import Counter, Histogram

from config import logs

JOB_SECONDS = Histogram(
    "batchquery_job_run_seconds",
    "Job runs: the work of workers on due rows, by outcome.",
    ("kind", "outcome"),
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)

CHAIN_EVENTS = Counter(
    "batchquery_chain_events_total",
    "Events on a chain that may be over before a scrape: docs/operating/watching.md explains each.",
    ("chain", "event"),
)


class ChainEvent(StrEnum):
    NONCE_GAP = "nonce_gap"
    NONCE_FILLED = "nonce_filled"
    REPLACED = "replaced"
    CANCELLED = "cancelled"
    REORGANISED = "reorganised"


def count(chain_id: int, event: ChainEvent) -> None:
    """Count an event once the caller's database transaction is committed, so that a repeated one counts once."""
    transaction.on_commit(CHAIN_EVENTS.labels(str(chain_id), event).inc)


@dataclass
class JobRun:
    """A worker's work on one due row. It is counted, timed, and named in its log lines."""

    outcome: str = "lost"
    """`done`, `waits`, `fails`, or `lost` if another worker has taken over the row."""


@contextmanager
def job_run(kind: str, **about: str | int) -> Iterator[JobRun]:
    """Time and count a job run. The caller sets its outcome. An uncaught exception is a `defect`."""
    this, outcome, began = JobRun(), "defect", time.monotonic()
    try:
        with logs.about(**about):
            yield this
        outcome = this.outcome
    finally:
        note_job_run(kind, outcome, began)


def note_job_run(kind: str, outcome: str, began: float) -> None:
    """Count and time a job run, or a turn with several rows. `began` is its beginning by `time.monotonic`."""
    JOB_SECONDS.labels(kind, outcome).observe(time.monotonic() - began)
