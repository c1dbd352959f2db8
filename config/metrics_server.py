"""Serve what a process counts that is no web server: a worker."""

from email.message import Message

from django.conf import settings

from config import operator_listener, process_metrics
from config.metrics_access import may_read
from config.operator_listener import Answer


def serve(port: int) -> None:
    """Serve `/metrics` to this machine alone, unless the settings allow others."""
    is_for_others = settings.METRICS_TOKEN or any(not one.is_loopback for one in settings.METRICS_ALLOWED_NETWORKS)
    host = "0.0.0.0" if is_for_others else "127.0.0.1"  # noqa: S104 (it is asked for)
    operator_listener.listen(host, port, {"/metrics": _metrics}, "metrics are served")


def _metrics(peer: str, headers: Message) -> Answer:
    if not may_read(peer, headers, behind_proxy=False):
        return Answer(403, "text/plain", b"")
    return Answer(200, process_metrics.CONTENT_TYPE, process_metrics.exposition())
