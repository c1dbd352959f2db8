"""A job run: a worker's work on one row that was due. It is counted, timed, and named in its log lines."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client import Histogram

from config import logs

JOB_SECONDS = Histogram(
    "batchquery_job_run_seconds",
    "Job runs: the work of workers on due rows, by outcome.",
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
        with logs.about(**about):
            yield this
        outcome = this.outcome
    finally:
        JOB_SECONDS.labels(kind, outcome).observe(time.monotonic() - began)


def note(kind: str, outcome: str, began: float) -> None:
    """Count and time a job run of a turn that has worked on several rows since it `began` (`time.monotonic`)."""
    JOB_SECONDS.labels(kind, outcome).observe(time.monotonic() - began)
