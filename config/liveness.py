"""Tell by a port of its own whether the web server lives, whatever its threads and the database do.

The supervisor answers. It has nothing else to do, and each of its processes gives it a sign of life every second.
"""

import time
from email.message import Message
from typing import Any

from config import operator_listener
from config.operator_listener import Answer


def serve(supervisor: Any, host: str, port: int) -> Any:
    """Serve `/livez` for gunicorn's supervisor, and return the listener."""

    def livez(_peer: str, _headers: Message) -> Answer:
        now = time.monotonic()
        lives = any(now - worker.tmp.last_update() < supervisor.timeout for worker in [*supervisor.WORKERS.values()])
        status, word = (200, b"ok") if lives else (503, b"no process lives")
        return Answer(status, "application/json", b'{"status": "%s"}' % word)

    return operator_listener.listen(host, port, {"/livez": livez}, "liveness is told")
