"""What processes count, and how it is read: in the text format of Prometheus.

A process counts in its own memory. The processes of one web server count in files of a folder in memory instead, so
that whichever of them is asked answers for all (`prometheus_client.multiprocess`); config/gunicorn.py makes it.
"""

import os
from collections.abc import Sequence

from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
    multiprocess,
)
from prometheus_client.registry import Collector

# Otherwise each counter has a second series, of when it began.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library's

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

REQUESTS = Counter("batchquery_requests_total", "Answered requests.", ("route", "status"))
REQUEST_SECONDS = Histogram(
    "batchquery_request_seconds",
    "How long an answer took, from when a thread took up the request.",
    ("route",),
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)


def exposition(collectors: Sequence[Collector] = ()) -> bytes:
    """Return the metrics of this process, or of all processes of its web server, and those of the collectors."""
    counted: CollectorRegistry = REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        counted = CollectorRegistry()
        multiprocess.MultiProcessCollector(counted)  # type: ignore[no-untyped-call]  # the library's
    more = CollectorRegistry()
    for collector in collectors:
        more.register(collector)
    return generate_latest(counted) + generate_latest(more)


def count_request(route: str | None, status: int, seconds: float) -> None:
    """Count a request by its route, never by the path, which clients choose.

    Routes of the admin count as one. None: the request has no route.
    """
    name = "unmatched" if route is None else "admin" if route.startswith("admin/") else route or "/"
    REQUESTS.labels(name, status).inc()
    REQUEST_SECONDS.labels(name).observe(seconds)
