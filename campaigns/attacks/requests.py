"""Floods of malformed requests. Each gets a correct answer soon, and other users don't suffer.

Schemathesis makes the requests from the API's description, so new operations are attacked without being listed here.
"""

import json
import os
import re
import statistics
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import requests

from campaigns.attacks.table import Seen
from campaigns.attacks.target import Target, target
from demo.client import submit
from demo.installation import CHAIN_ID, CHAINS_TOML
from devnet.devchain import ACCOUNTS, PROJECT
from devnet.servers import Postgres
from tests.names import Names

_SCHEMATHESIS = PROJECT / ".venv-attack" / "bin" / "schemathesis"
# Seconds of one round, and maximum seconds of all rounds. Rounds end when enough requests were sent.
_ROUND_SECONDS, _MOST_SECONDS = 180, 15 * 60
_CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
_FAILURES = re.compile("^=+ FAILURES =", re.MULTILINE)
# Titles of errors inside schemathesis, which say nothing about the service. Rounds in which it may fail so.
_OF_GENERATOR = {"Runtime Error", "Internal Error", "Hook Error", "Failed Health Check"}
_MOST_FAILED = 3
# Limits for a machine that runs the service and the attack at once.
_SLOW_SECONDS, _P99_SECONDS = 10, 2


def run(seed: int, count: int) -> Iterator[Seen]:
    """Send `count` requests to a service on SQLite, and a tenth of them to one on PostgreSQL."""
    with _unthrottled() as attacked:
        yield from _flood(attacked, "SQLite", seed, count)
    with Postgres() as server, _unthrottled(server.url()) as attacked:
        yield from _flood(attacked, "PostgreSQL", seed + 1, count // 10)


@contextmanager
def _unthrottled(database_url: str = "") -> Iterator[Target]:
    """Run a service that can resolve an ENS name and doesn't limit a user's requests."""
    chains = f"[ens]\nchain = {CHAIN_ID}\n\n{CHAINS_TOML}"
    with target(
        chains, MAX_BATCHES_PER_MINUTE="1000000", MAX_QUERIES_PER_MINUTE="100000000", DATABASE_URL=database_url
    ) as attacked:
        Names(attacked.chain).set("alice.eth", ACCOUNTS[0][0])
        # The contract was set outside a block, so nothing can be proven at that block. Requests name the five newest
        # blocks.
        attacked.chain.mine(5)
        yield attacked


# --- Existing values to request ---------------------------------------------------------------------------------------


def _known(attacked: Target, key: str) -> dict[str, Any]:
    """Return values and bodies that name existing batches of all kinds and deliveries of this key's user."""
    bodies = _bodies(attacked.chain.head())
    ids = [submit(attacked.url, key, body) for body in bodies]
    for identifier in ids[::5]:
        # Some of the batches are done by then.
        requests.post(f"{attacked.url}/batch-queries/{identifier}/cancel", headers={"api-key": key}, timeout=30)
    deliveries: list[str] = []
    deadline = time.monotonic() + 60
    while not deliveries and time.monotonic() < deadline:
        time.sleep(1)
        answer = requests.get(f"{attacked.url}/webhook-deliveries", headers={"api-key": key}, timeout=30).json()
        deliveries = [each["id"] for each in answer["deliveries"]]
    values = {
        **dict.fromkeys(("internal_id", "internalId", "batchQueryId", "request_id"), ids),
        "query_id": [f"{identifier}-1" for identifier in ids],
        **dict.fromkeys(("delivery_id", "deliveryId"), deliveries),
        "account": [ACCOUNTS[0][0]],
        "sourceChainId": [str(CHAIN_ID)],
        "destinationChainId": [str(CHAIN_ID)],
    }
    return {"values": values, "bodies": bodies}


def _good(block: int) -> dict[str, Any]:
    accounts = {ACCOUNTS[0][0]: {"props": ["BALANCE", "NONCE"], "slots": ["0x1", "0x2"]}}
    data = {str(CHAIN_ID): {f"block:{block}": {"accounts": accounts, "header": ["TIMESTAMP"]}}}
    return {"destinationChainId": str(CHAIN_ID), "fee": "0", "data": data}


def _bodies(head: int) -> list[dict[str, Any]]:
    webhook = {"url": "http://127.0.0.1:9/hook", "events": ["DONE", "REJECTED", "STEP"]}
    named = {"accounts": {"alice.eth": {"props": ["NONCE"]}}}
    ahead = {f"block:{head + 1000}": named, "latest": named}
    bodies = []
    for number in range(20):
        body = _good(max(1, head - number % 5))
        blocks = body["data"][str(CHAIN_ID)]
        body |= ({}, {"webhook": webhook}, {"sender": "self"}, {})[number % 4]
        if number % 2 and number % 7:
            # No proof of a header, or of a block to come, is given for reading.
            del next(iter(blocks.values()))["header"]
        blocks |= {"latest": named} if number % 3 == 0 else ahead if number % 7 == 0 else {}
        bodies.append(body)
    return bodies


@dataclass
class _Others:
    """A user who submits valid batches during the flood."""

    url: str
    key: str
    seconds: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @contextmanager
    def go_on(self) -> Iterator[Self]:
        over = threading.Event()
        thread = threading.Thread(target=self._run, args=(over,))
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join()

    def _run(self, over: threading.Event) -> None:
        while not over.wait(1):
            began = time.monotonic()
            body = _good(len(self.seconds) % 5 + 1)
            try:
                answer = requests.post(
                    f"{self.url}/submit-batch-query", json=body, headers={"api-key": self.key}, timeout=60
                )
            except requests.RequestException as error:
                self.refused.append(type(error).__name__)
                continue
            self.seconds.append(time.monotonic() - began)
            if not answer.ok:
                self.refused.append(f"{answer.status_code} {answer.text[:80]}")

    def seen(self) -> Seen:
        median = sorted(self.seconds)[len(self.seconds) // 2]
        return Seen(
            f"{len(self.seconds)} good submissions of another user meanwhile",
            "all are taken, soon",
            f"{len(self.refused)} refused{''.join(f'; {refusal}' for refusal in self.refused[:3])}; half within "
            f"{median:.2f} s, all within {max(self.seconds):.2f} s",
            not self.refused and max(self.seconds) < _SLOW_SECONDS,
        )


# --- The flood --------------------------------------------------------------------------------------------------------


def _flood(attacked: Target, database: str, seed: int, count: int) -> Iterator[Seen]:
    if not _SCHEMATHESIS.exists():
        yield Seen("schemathesis", "is there", "make .venv-attack/ready installs it", kept=None)
        return
    key, folder = attacked.key(2), Path(attacked.service.folder)
    (folder / "known.json").write_text(json.dumps(_known(attacked, key)))
    began = time.monotonic()
    with _Others(attacked.url, attacked.key(1)).go_on() as others:
        flood = rounds(attacked.url, key, folder, seed, count)
    yield flood.seen(
        f"{len(flood.seconds)} requests made by schemathesis from /api/openapi.json ({_CHECKS}), to a service on "
        f"{database}, in {time.monotonic() - began:.0f} s, seed {seed}",
        count,
    )
    yield others.seen()
    yield _goes_on(attacked)


@dataclass
class Flood:
    """Requests of complete rounds, as the hooks of schemathesis count them."""

    counts: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Failures of schemathesis itself."""

    def seen(self, tried: str, count: int) -> Seen:
        """Return the result of a flood that should have `count` requests."""
        p99 = statistics.quantiles(self.seconds, n=100)[98] if len(self.seconds) > 1 else 0
        slowest = max(self.seconds, default=0)
        is_good = not self.faults and p99 < _P99_SECONDS and slowest < _SLOW_SECONDS
        is_whole = None if self.failures and len(self.seconds) < count else bool(self.seconds)
        return Seen(
            tried,
            f"each is answered truthfully, as JSON where that is promised, 99 % within {_P99_SECONDS} s and all within "
            f"{_SLOW_SECONDS} s",
            f"99 % within {1000 * p99:.0f} ms, all within {1000 * slowest:.0f} ms"
            + "".join(f"; {fault}" for fault in self.faults)
            + "".join(f"; the generator failed, not the service: {failure}" for failure in self.failures)
            + "".join(f"\n          {times:7} {what}" for what, times in sorted(self.counts.items())),
            is_good and is_whole,
        )


def rounds(url: str, key: str, folder: Path, seed: int, count: int) -> Flood:
    """Run schemathesis until `count` requests were sent, a fault was found, or it failed too often."""
    flood, until = Flood(), time.monotonic() + _MOST_SECONDS
    while len(flood.seconds) < count and time.monotonic() < until and not flood.faults:
        _add_round(flood, url, key, folder, seed)
        seed += 1
        if len(flood.failures) == _MOST_FAILED:
            break
    return flood


def _add_round(flood: Flood, url: str, key: str, folder: Path, seed: int) -> None:
    """Run schemathesis once. A round in which it failed has left out requests, so its requests don't count."""
    counts = folder / "counts.json"
    counts.unlink(missing_ok=True)
    command = [
        *(str(_SCHEMATHESIS), "run", f"{url}/api/openapi.json", "--no-color", "--header", f"api-key: {key}"),
        *("--checks", _CHECKS, "--max-response-time", str(_SLOW_SECONDS), "--request-timeout", "30"),
        *("--max-time", str(_ROUND_SECONDS), "--seed", str(seed), "--workers", "2", "--warnings", "off"),
        *("--suppress-health-check", "all"),
        *(("--phases", "fuzzing") if flood.seconds else ()),
    ]
    environment = os.environ | {
        "SCHEMATHESIS_HOOKS": "campaigns.attacks.schemathesis_hooks",
        "PYTHONPATH": str(PROJECT),
        "ATTACK_KNOWN": str(folder / "known.json"),
        "ATTACK_COUNTS": str(counts),
    }
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=4 * _ROUND_SECONDS, check=False, cwd=folder, env=environment
    )
    if done.returncode:
        # The summary names the titles of all errors.
        titles = set(re.findall(r"^  🚫 (.+): \d+$", done.stdout, re.MULTILINE))
        is_generators = titles and titles <= _OF_GENERATOR and not _FAILURES.search(done.stdout)
        (flood.failures if is_generators else flood.faults).append(_findings(done.stdout) or done.stderr[-1000:])
        if is_generators:
            return
    counted = json.loads(counts.read_text()) if counts.exists() else {"counts": {}, "seconds": []}
    flood.counts.update(counted["counts"])
    flood.seconds += counted["seconds"]


def _findings(output: str) -> str:
    """Return the findings in schemathesis's output."""
    begins = re.search(r"^=+ (ERRORS|FAILURES) =+$", output, re.MULTILINE)
    return output[begins.start() :].partition("= SUMMARY =")[0][:4000] if begins else output[-1000:]


def _goes_on(attacked: Target) -> Seen:
    log = attacked.service.log("web").read_text(errors="replace")
    # If the database is locked for longer than a request waits, a traceback is logged and the answer is a documented
    # 503.
    lines = re.findall(r"^\d{4}-.*\nTraceback \(most recent", log, re.MULTILINE)
    tracebacks = [line for line in lines if "Service Unavailable" not in line]
    healthy = requests.get(f"{attacked.url}/healthz", timeout=30).ok
    return Seen(
        "the service afterwards",
        "it is healthy, and its log has no exception",
        f"{'healthy' if healthy else 'not healthy'}, {len(tracebacks)} exceptions in its log, and "
        f"{len(lines) - len(tracebacks)} of a locked database",
        healthy and not tracebacks,
    )
