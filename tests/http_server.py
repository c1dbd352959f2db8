"""A small HTTP server with a test's handler."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer


@contextmanager
def serving(
    handler: type[socketserver.BaseRequestHandler], kind: type[socketserver.TCPServer] = ThreadingHTTPServer
) -> Iterator[str]:
    """Serve on a free port. Yield the URL."""
    with kind(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
