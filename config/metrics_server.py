"""Serve what a process counts that is no web server: a worker."""

import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from django.conf import settings

from config import process_metrics
from config.metrics_access import may_read

logger = logging.getLogger(__name__)


class _Handler(BaseHTTPRequestHandler):
    timeout = 10

    def do_GET(self) -> None:
        if self.path != "/metrics" or not may_read(self.client_address[0], self.headers, behind_proxy=False):
            self.send_error(403 if self.path == "/metrics" else 404)
            return
        body = process_metrics.exposition()
        self.send_response(200)
        self.send_header("Content-Type", process_metrics.CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write no line for each scrape: it would help nobody."""


def serve(port: int) -> None:
    """Serve `/metrics` to this machine alone, unless the settings allow others."""
    is_for_others = settings.METRICS_TOKEN or any(not one.is_loopback for one in settings.METRICS_ALLOWED_NETWORKS)
    host = "0.0.0.0" if is_for_others else "127.0.0.1"  # noqa: S104 (it is asked for)
    try:
        server = ThreadingHTTPServer((host, port), _Handler)
    except OSError as error:
        logger.error("no metrics are served: can't listen on port %d: %s", port, error.strerror)  # noqa: TRY400 (all is said)
        return
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
