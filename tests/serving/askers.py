"""Users who wait for changes of an open batch."""

import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import requests

from tests.serving.batches import BODY, database
from tests.serving.process import Answer, WebServer, ask, connect

USERS = 7
MAKE_KEYS = f"""
from tests.service import a_key, secret_of
for number in range(1, {USERS} + 1):
    print(secret_of(a_key(f"0x{{number:040d}}")))
"""


@dataclass(frozen=True)
class Asker:
    """A user with an open batch."""

    server: WebServer
    key: str
    batch: str

    def request(self, wait: int, *fields: str) -> bytes:
        lines = (
            f"GET /batch-query-status?batchQueryId={self.batch}&wait={wait} HTTP/1.1",
            *("Host: 127.0.0.1", f"api-key: {self.key}", *fields),
        )
        return "".join(f"{line}\r\n" for line in (*lines, "")).encode()

    def ask(self, wait: int, *fields: str) -> Answer:
        return ask(self.server.port, self.request(wait, *fields))

    @contextmanager
    def waiting(self, *fields: str) -> Iterator[socket.socket]:
        with connect(self.server.port) as connection:
            connection.sendall(self.request(25, *fields))
            yield connection

    def become(self, status: str) -> None:
        with closing(sqlite3.connect(database(self.server), isolation_level=None, timeout=20)) as other:
            other.execute("UPDATE queries_batch SET status = ? WHERE id = ?", (status, self.batch))


def askers(server: WebServer) -> list[Asker]:
    keys = server.installation.manage("shell", "--no-imports", "-c", MAKE_KEYS).splitlines()[-USERS:]
    url = f"{server.url}/submit-batch-query"
    answers = [requests.post(url, json=BODY, headers={"api-key": key}, timeout=20).json() for key in keys]
    return [Asker(server, key, answer["internalId"]) for key, answer in zip(keys, answers, strict=True)]
