"""Submit batches to a web server."""

from pathlib import Path

import requests

from tests.serving.process import WebServer

ACCOUNT = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
BODY = {
    "destinationChainId": "31337",
    "fee": "0",
    "data": {"31337": {"block:1": {"accounts": {ACCOUNT: {"props": ["BALANCE"]}}}}},
}
MAKE_A_KEY = f"""
import secrets
from tests.service import a_key, secret_of
print(secret_of(a_key("{ACCOUNT}", name=secrets.token_hex(4))))
"""


def a_key(server: WebServer) -> str:
    made: str = server.installation.manage("shell", "--no-imports", "-c", MAKE_A_KEY)
    return made.splitlines()[-1]


def database(server: WebServer) -> Path:
    return server.installation.folder / "db.sqlite3"


def submit(server: WebServer, key: str) -> requests.Response:
    return requests.post(f"{server.url}/submit-batch-query", json=BODY, headers={"api-key": key}, timeout=20)
