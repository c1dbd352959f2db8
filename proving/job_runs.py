"""A look at one row that was due: counted, timed, and named in the log lines that it writes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client import Histogram

from config import log_context

JOB_SECONDS = Histogram(
    "batchquery_look_seconds",
    "Looks of workers at due rows, by what came of them.",
    ("kind", "outcome"),
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)


@dataclass
class JobRun:
    outcome: str = "lost"
    """`done`, `waits`, `fails`, or `lost` where another worker has taken over the row."""


@contextmanager
def job_run(kind: str, **about: str | int) -> Iterator[JobRun]:
    """Time and count a job run. Its caller sets the outcome; an exception is a `defect`: expected ones are caught."""
    this, outcome, began = JobRun(), "defect", time.monotonic()
    try:
        with log_context.about(**about):
            yield this
        outcome = this.outcome
    finally:
        JOB_SECONDS.labels(kind, outcome).observe(time.monotonic() - began)
