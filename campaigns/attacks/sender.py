"""Sends hostile requests over one connection, for as long as the server keeps it, and notes what becomes of each."""

import random
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from http.client import HTTPException

from campaigns.attacks.hostile import Known, Operation, Request, made
from campaigns.attacks.tally import Tally
from tests.serving.process import Answer, connect, read_answer

_MOST_ETAGS = 50


class Sender:
    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: socket.socket | None = None

    def ask(self, request: Request) -> Answer | None:
        """None: the server closed without an answer. Raises `TimeoutError`."""
        if not request.is_http:
            return self._ask_apart(request)
        is_kept = self._connection is not None
        try:
            return self._ask(request)
        except TimeoutError:
            self.close()
            raise
        except (OSError, HTTPException):
            self.close()
            # A kept connection may have been closed meanwhile.
            return self.ask(request) if is_kept else None

    def close(self) -> None:
        if self._connection:
            self._connection.close()
        self._connection = None

    def _ask(self, request: Request) -> Answer:
        self._connection = self._connection or connect(self._port)
        # Who refuses a body may answer before it has come.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._connection.sendall(request.raw)
        answer = read_answer(self._connection, request.method)
        if (answer.headers["Connection"] or "").lower() == "close" or b"Connection: close" in request.raw:
            self.close()
        return answer

    def _ask_apart(self, request: Request) -> Answer | None:
        with connect(self._port) as connection:
            with suppress(OSError):
                connection.sendall(request.raw)
                # Of what never ends by itself, the end.
                connection.shutdown(socket.SHUT_WR)
            try:
                return read_answer(connection, "HEAD" if request.raw.startswith(b"HEAD ") else "GET")
            except TimeoutError:
                raise
            except (OSError, HTTPException):
                return None


def send(port: int, operations: Sequence[Operation], known: Known, *, count: int, seed: int) -> Tally:
    """So many requests, each operation in turn."""
    choice, tally, sender = random.Random(seed), Tally(), Sender(port)
    for number in range(count):
        operation = operations[number % len(operations)]
        request = made(choice, operation, known)
        began = time.monotonic()
        try:
            answer = sender.ask(request)
        except TimeoutError:
            tally.note(str(operation), "none", time.monotonic() - began, f"no answer in time: {request.raw[:400]!r}")
            continue
        seconds = time.monotonic() - began
        fault = request.fault(answer)
        said = answer and f"{answer.status} {answer.body[:200]!r}"
        name = str(operation) if request.is_http else "malformed HTTP"
        shown = f"{fault}: {request.raw[:400]!r} got {said}" if fault else ""
        tally.note(name, answer.status if answer else "closed", seconds, shown)
        if answer and answer.headers["ETag"] and len(known.etags) < _MOST_ETAGS:
            known.etags.append(answer.headers["ETag"])
    sender.close()
    return tally
