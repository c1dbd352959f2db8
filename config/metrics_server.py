"""Serves what a process counts that is no web server: a worker."""

import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from django.conf import settings

from config import process_metrics
from config.metrics_access import may_read

logger = logging.getLogger(__name__)

_SECONDS = 10


class _Handler(BaseHTTPRequestHandler):
    timeout = _SECONDS

    def do_GET(self) -> None:
        if self.path != "/metrics":
            self.send_error(404)
        elif not may_read(self.client_address[0], self.headers, behind_proxy=False):
            self.send_error(403)
        else:
            body = process_metrics.exposition()
            self.send_response(200)
            self.send_header("Content-Type", process_metrics.CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """A line for each scrape would help nobody."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Of a client that went away."""


def serve(port: int) -> None:
    """Serve `/metrics` in a thread until the process ends.

    Where the port can't be had, that is logged: proving is what matters. It listens to this machine alone, unless
    somebody else may read them.
    """
    is_for_others = settings.METRICS_TOKEN or any(not one.is_loopback for one in settings.METRICS_ALLOWED_NETWORKS)
    try:
        server = _Server(("0.0.0.0" if is_for_others else "127.0.0.1", port), _Handler)  # noqa: S104 (it is asked for)
    except OSError as error:
        logger.error("no metrics are served: port %d can't be had: %s", port, error.strerror)  # noqa: TRY400 (all is said)
        return
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
