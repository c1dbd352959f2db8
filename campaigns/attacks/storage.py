"""The disk becomes full at any moment. The service must say so, lose nothing, and recover."""

import os
import random
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import requests

from campaigns.attacks.table import Seen
from campaigns.attacks.target import Target, target
from campaigns.bodies import balances
from devnet.devchain import ACCOUNTS

_SIGNER = ACCOUNTS[3][0]
_DISK = "40m"
_ROUNDS = 6
_SECONDS = 60  # maximum seconds until the service has recovered
_ANSWER_SECONDS = 10  # maximum seconds for a single answer


def run(seed: int) -> Iterator[Seen]:
    chance = random.Random(seed)
    with (
        small_disk() as folder,
        target(SQLITE_FILE=str(folder / "db.sqlite3"), MAX_QUERIES_PER_MINUTE="1000000") as attacked,
    ):
        key = attacked.key()
        service = _Attacked(attacked, folder, key, chance)
        if os.path.ismount(folder):
            yield service.full()
            yield service.filled_again_and_again()
        else:
            yield Seen("a full disk", "nothing is lost", "not tried: only root can mount a small one", kept=True)


@contextmanager
def small_disk() -> Iterator[Path]:
    """Yield a folder. If the user is root, it is on a small disk of its own."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as mounted:
        if os.geteuid() == 0:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", folder], check=True)
            mounted.callback(subprocess.run, ["umount", "--lazy", folder], check=True)
        yield Path(folder)


class _Attacked:
    def __init__(self, attacked: Target, folder: Path, key: str, chance: random.Random) -> None:
        self._attacked, self._folder, self._key, self._chance = attacked, folder, key, chance
        self._database = folder / "db.sqlite3"
        self._filler = folder / "filler"
        self._taken: list[str] = []

    # --- The attacks --------------------------------------------------------------------------------------------------

    def full(self) -> Seen:
        # Some batches are under way. More are submitted until the log of the database is full.
        for _ in range(3):
            self._submit(20)
        self._fill()
        answers = [self._submit(2000)]
        while answers[-1].ok and len(answers) < 20:
            answers.append(self._submit(2000))
        health_said = self._until(lambda: self._get("/healthz").status_code == 503)
        reads = [self._get(path) for path in ("/", "/chain-connections", "/explorer", "/sign-in")]
        reads.append(self._status(self._taken[-1]))
        time.sleep(10)  # the worker tries all its work
        self._filler.unlink()
        recovered = self._until(lambda: self._get("/healthz").ok)
        done = self._until(self._all_are_done)
        faults = self._faults()
        return Seen(
            f"a full disk for {health_said + 10:.0f} s while batches are proven",
            "503 with Retry-After as JSON, /healthz says it, what reads is answered, and when there is room again all "
            "that was taken is DONE, and nothing was broadcast that isn't stored",
            f"{len(answers) - 1} taken into what was left, then {_described(answers[-1])}; /healthz 503 after "
            f"{health_said:.1f} s; reads {[answer.status_code for answer in reads]}; with room /healthz ok "
            f"after {recovered:.1f} s, {len(self._taken)} batches DONE after {done:.1f} s; {faults or 'no'} faults",
            kept=_is_refused(answers[-1])
            and health_said < 2 * _ANSWER_SECONDS
            and all(answer.ok for answer in reads)
            and max(recovered, done) < _SECONDS
            and not faults,
        )

    def filled_again_and_again(self) -> Seen:
        before = len(self._taken)
        refused = []
        for _ in range(_ROUNDS):
            self._submit(self._chance.randrange(1, 100))
            time.sleep(self._chance.uniform(0, 1.5))
            self._fill()
            answer = self._submit(self._chance.randrange(1, 2000))
            refused += [] if answer.ok else [answer]
            time.sleep(self._chance.uniform(0, 1.5))
            self._filler.unlink()
        done = self._until(self._all_are_done)
        faults = self._faults()
        return Seen(
            f"a disk that is filled {_ROUNDS} times, at random moments of proving",
            "what was taken is DONE, what wasn't was answered 503, and the database is whole",
            f"{len(self._taken) - before} taken, {len(refused)} refused; DONE after {done:.1f} s; {faults or 'no'} "
            "faults",
            kept=all(map(_is_refused, refused)) and done < _SECONDS and not faults,
        )

    # --- Actions and checks -------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        with self._filler.open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError:
                return

    def _submit(self, accounts: int) -> requests.Response:
        named = [f"0x{self._chance.randrange(2**160):040x}" for _ in range(accounts)]
        body = balances([self._attacked.chain.head()], named)
        url = f"{self._attacked.url}/submit-batch-query"
        answer = requests.post(url, json=body, headers={"api-key": self._key}, timeout=30)
        if answer.ok:
            self._taken.append(answer.json()["internalId"])
        return answer

    def _get(self, path: str) -> requests.Response:
        return requests.get(self._attacked.url + path, timeout=30)

    def _status(self, batch: str) -> requests.Response:
        url = f"{self._attacked.url}/batch-query-status"
        return requests.get(url, params={"batchQueryId": batch}, headers={"api-key": self._key}, timeout=30)

    def _all_are_done(self) -> bool:
        return all(self._status(batch).json().get("queryStatus") == "DONE" for batch in self._taken)

    def _until(self, is_so: Callable[[], bool]) -> float:
        """Return the seconds until the condition is true. Infinity if it isn't within `_SECONDS`."""
        began = time.monotonic()
        while time.monotonic() < began + _SECONDS:
            if is_so():
                return time.monotonic() - began
            time.sleep(0.5)
        return float("inf")

    def _faults(self) -> list[str]:
        """Return faults in the rows and in the broadcast transactions."""
        with closing(sqlite3.connect(self._database)) as database:

            def ask(sql: str) -> list[Any]:
                return [row[0] for row in database.execute(sql)]

            faults = [f"integrity: {message}" for message in ask("PRAGMA integrity_check") if message != "ok"]
            faults += [f"foreign key of {table}" for table in ask("PRAGMA foreign_key_check")]
            faults += [f"query {pk} without its step" for pk in ask(_QUERIES_WITHOUT_STEP)]
            if set(ask("SELECT id FROM queries_batch")) != set(self._taken):
                faults.append("other batches are stored than were answered for")
            stored = set(ask("SELECT hash FROM proving_signedtransaction"))
        chain = self._attacked.chain
        for number in range(chain.head() + 1):
            block = chain.rpc("eth_getBlockByNumber", hex(number), True)
            sent = [tx["hash"] for tx in block["transactions"] if tx["from"].lower() == _SIGNER.lower()]
            faults += [f"{tx_hash} was broadcast and isn't stored" for tx_hash in sent if tx_hash not in stored]
        return faults


# An open query must have the row of its step. A finished query must have the rows of all steps.
_QUERIES_WITHOUT_STEP = """
SELECT query.id FROM queries_query query WHERE query.step IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM queries_step step
    WHERE step.query_id = query.id AND step.kind = query.step AND step.status = 'IN_PROGRESS'
) UNION SELECT query.id FROM queries_query query WHERE query.step IS NULL AND 4 > (
    SELECT count(*) FROM queries_step step WHERE step.query_id = query.id AND step.status = 'COMPLETED'
)
"""


def _is_refused(answer: requests.Response) -> bool:
    """Return whether the answer is a refusal in the API's form."""
    is_json = answer.headers["Content-Type"].startswith("application/json")
    return answer.status_code == 503 and "Retry-After" in answer.headers and is_json


def _described(answer: requests.Response) -> str:
    code = answer.json().get("code") if answer.headers["Content-Type"].startswith("application/json") else "no JSON"
    return f"{answer.status_code} {code}"
