"""Metrics: counts of requests, the check of clients, and a worker's HTTP server for its own metrics."""

import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol

from django.conf import settings
from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    multiprocess,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from config import client_addresses

# Each counter would have a second series with its time of creation.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library is untyped

REQUESTS = Counter("batchquery_requests_total", "Answered requests.", ("route", "status"))
REQUEST_SECONDS = Histogram(
    "batchquery_request_seconds",
    "Seconds to answer a request, from the start of its thread.",
    ("route",),
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)


@dataclass(frozen=True)
class Exposition:
    """Metrics as text, in the form that the header Accept asks for: Prometheus's own, or OpenMetrics."""

    content: bytes
    content_type: str


def exposition(accept: str, collectors: Sequence[Collector] = ()) -> Exposition:
    """Return the metrics of this process, or of all processes of the web server, and of the collectors."""
    whole = CollectorRegistry()
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        multiprocess.MultiProcessCollector(whole)  # type: ignore[no-untyped-call]  # the library is untyped
    else:
        whole.register(REGISTRY)
    for collector in collectors:
        whole.register(collector)
    try:
        encode, content_type = choose_encoder(accept)
    except TypeError:
        # The library compares a version that is no number with numbers.
        encode, content_type = choose_encoder("")
    return Exposition(encode(whole), content_type)


def count_request(route: str | None, status: int, seconds: float) -> None:
    """Count a request by its route, because clients could make up any number of paths.

    All routes of the admin have the same name. `route` is None if no route matches.
    """
    name = "unmatched" if route is None else "admin" if route.startswith("admin/") else route or "/"
    REQUESTS.labels(name, status).inc()
    REQUEST_SECONDS.labels(name).observe(seconds)


# Headers that proxies add. If such a request has no configured address header, its address is the proxy's, not the
# client's.
PROXY_HEADERS = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP")


class _Headers(Protocol):
    def get(self, name: str, default: str, /) -> str: ...

    def __contains__(self, name: str, /) -> bool: ...


def may_read(peer: str, headers: _Headers, *, behind_proxy: bool) -> bool:
    """Return whether a client may read the metrics.

    `peer` is the connection's address as text, empty for a Unix socket. `headers` ignore case. `behind_proxy` is True
    if the settings for a proxy apply to this server.
    """
    token = settings.METRICS_TOKEN
    if token and compare_digest(headers.get("Authorization", "").encode(), f"Bearer {token}".encode()):
        return True
    header_name = settings.CLIENT_ADDRESS_HEADER
    forwarded = headers.get(header_name, "") if behind_proxy and header_name else ""
    if forwarded:
        # An empty last entry is the proxy's, and the one before it may be the client's.
        peer = forwarded.rpartition(",")[2]
    elif any(header in headers for header in PROXY_HEADERS):
        return False
    address = client_addresses.read(peer)
    return address is not None and any(address in network for network in settings.METRICS_ALLOWED_NETWORKS)


logger = logging.getLogger(__name__)


class _MetricsHandler(BaseHTTPRequestHandler):
    timeout = 10

    def do_GET(self) -> None:
        if self.path != "/metrics" or not may_read(self.client_address[0], self.headers, behind_proxy=False):
            self.send_error(403 if self.path == "/metrics" else 404)
            return
        metrics = exposition(self.headers.get("Accept", ""))
        self.send_response(200)
        self.send_header("Content-Type", metrics.content_type)
        self.send_header("Content-Length", str(len(metrics.content)))
        self.end_headers()
        self.wfile.write(metrics.content)

    def log_message(self, *_: object) -> None:
        """Log nothing, because scrapes are frequent."""


def serve(port: int) -> None:
    """Serve `/metrics`, only to this machine unless the settings allow other clients."""
    is_for_others = settings.METRICS_TOKEN or any(
        not network.is_loopback for network in settings.METRICS_ALLOWED_NETWORKS
    )
    host = "0.0.0.0" if is_for_others else "127.0.0.1"  # noqa: S104 (the settings allow other clients)
    try:
        server = ThreadingHTTPServer((host, port), _MetricsHandler)
    except OSError as error:
        logger.error("no metrics are served: can't listen on port %d: %s", port, error.strerror)  # noqa: TRY400 (the message says everything)
        return
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
