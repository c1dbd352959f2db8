"""An earlier version becomes this version under load, process by process, and is rolled back once."""

import io
import random
import subprocess
import tarfile
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import requests

from campaigns.attacks.table import Seen
from campaigns.chaos.engines import WORKERS, Installed, a_chain
from campaigns.chaos.judge import judge
from campaigns.chaos.load import Load, kinds
from demo.client import TIMEOUT
from demo.installation import CHAIN_ID, CHAINS_TOML, Installation
from devnet.devchain import ACCOUNTS, PROJECT
from devnet.servers import Postgres, Redis
from tests.deploy.units import Units
from tools.install import install

VERSIONS = {"0.3.0": "a0daf457", "0.4.0": "58456207"}
"""Earlier versions with a commit of each."""
# Queries that PostgreSQL has before, and seconds for which a dump reads them while the migrations begin.
_QUERIES, _DUMP_SECONDS = 300_000, 20
# The batch to which these belong, and the columns of a table that can be written.
_FULL = "0" * 26
_COLUMNS = """
    SELECT column_name FROM information_schema.columns
    WHERE table_name = %s AND is_identity = 'NO' AND is_generated = 'NEVER'
"""
_WEB, _MIGRATE = "batch-query-web", "batch-query-migrate"
_PAUSE_SECONDS, _POLLS = 4, 6
_SECONDS_TO_START, _SECONDS_TO_END = 60, 180


def run(engine: str, version: str, seed: int) -> Iterator[Seen]:
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        older = _older_version(folder, VERSIONS[version])
        chain = running.enter_context(a_chain())
        sqlite = f"sqlite:///{folder / 'state' / 'db.sqlite3'}"
        database_url = sqlite if engine == "sqlite" else running.enter_context(Postgres()).url()
        redis = running.enter_context(Redis()) if engine == "celery" else None
        units = Units(running, older, folder, {})
        variables = {"MAX_BATCHES_PER_MINUTE": "100000", "METRICS_PORT": "0"}
        variables |= {} if engine == "sqlite" else {"DATABASE_URL": database_url}
        variables |= {"BROKER_URL": redis.url()} if redis else {}
        url = f"http://127.0.0.1:{units.port}"
        state = Installation(
            running, folder / "state", CHAINS_TOML % chain.url, ACCOUNTS[3][1], BASE_URL=url, **variables
        )
        units.environment |= state.environment
        units.run(_MIGRATE)
        units.manage("collectstatic", "--no-input")
        registry = units.manage("deploy_registry", str(CHAIN_ID), str(CHAIN_ID)).split()[-1]
        chain.mine()
        kind = "celery" if engine == "celery" else "worker"
        workers = [f"batch-query-{kind}@{number}" for number in range(1, WORKERS + 1)]
        for name in (_WEB, *workers):
            units.start(name)
        _wait_until_ok(f"{url}/healthz")

        installed = Installed(engine, url, chain, registry, database_url)
        load = Load(installed, seed, batches=100_000, pause=0.3)
        load.start()
        polls = [_Polls(url, load, seed + number) for number in range(_POLLS)]
        for each in polls:
            each.start()
        polls_and_load = (*(each.failed for each in polls), load.refused)
        yield _migrate(units, installed, version)
        for units.tree in (PROJECT, older, PROJECT):
            units.run(_MIGRATE)
            _restart(units, workers, url)
        load.end()
        for each in polls:
            each.over.set()
        for thread in (*polls, load):
            thread.join()
        answered, failed = sum(each.answered for each in polls), sum(polls_and_load, Counter[str]())
        yield Seen(
            f"{engine}: migrated, taken to this version, back and here again, under {_POLLS + 1} clients",
            "no request is refused, lost or answered by an error",
            f"{len(load.answered)} submissions and {answered} questions answered, {kinds(failed) or 'none failed'}; "
            f"the slowest took {max(each.slowest for each in polls):.1f} s",
            kept=not failed and min(len(load.answered), answered) > 0,
        )
        yield from judge(installed, load, "taken from an older version to this one", _SECONDS_TO_END)


def _migrate(units: Units, installed: Installed, version: str) -> Seen:
    """Run the migrations while the older processes and a dump run. The processes go on with the new schema."""

    def signed() -> int:
        ((count,),) = installed.rows("SELECT count(*) FROM proving_signedtransaction")
        return int(count)

    time.sleep(_PAUSE_SECONDS)
    before = signed()
    units.tree = PROJECT
    with _dump(installed):
        units.run(_MIGRATE)
    # During this pause, a turn that is under way ends.
    time.sleep(_PAUSE_SECONDS)
    meanwhile = signed()
    time.sleep(2 * _PAUSE_SECONDS)
    after = signed()
    return Seen(
        f"{installed.engine}: migrated under workers of {version}",
        "they go on",
        f"{before} transactions were signed before, {meanwhile} soon after, {after} later",
        kept=0 < before <= meanwhile < after,
    )


@contextmanager
def _dump(installed: Installed) -> Iterator[None]:
    """Give PostgreSQL many queries, and read them in a transaction that ends after a while."""
    if installed.engine == "sqlite":
        yield
        return
    with psycopg.connect(installed.database_url) as writing:
        _copy(writing, "queries_batch", {"id": f"'{_FULL}'", "status": "'DONE'"}, "queries_batch LIMIT 1")
        query = f"(SELECT * FROM queries_query LIMIT 1) AS queries_query, generate_series(1, {_QUERIES}) AS number"
        _copy(writing, "queries_query", {"batch_id": f"'{_FULL}'", "position": "number"}, query)
    with psycopg.connect(installed.database_url) as reading:
        reading.execute("SELECT count(*) FROM queries_query")
        end = threading.Timer(_DUMP_SECONDS, reading.rollback)
        end.start()
        try:
            yield
        finally:
            end.join()


def _copy(database: psycopg.Connection[Any], table: str, changed: Mapping[str, str], source: str) -> None:
    """Insert rows with the columns of the `source`, apart from the changed ones, in SQL."""
    columns = [name for (name,) in database.execute(_COLUMNS, [table]).fetchall()]
    values = ", ".join(changed.get(name, f"{table}.{name}") for name in columns)
    database.execute(f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM {source}".encode())


def _restart(units: Units, workers: list[str], url: str) -> None:
    """Continue as docs/operating/upgrading.md says."""

    def go_on() -> None:
        time.sleep(_PAUSE_SECONDS)
        # gunicorn reports that it is ready before its processes have loaded the application.
        _wait_until_ok(f"{url}/livez")

    units.manage("collectstatic", "--no-input")
    units.restart(_WEB)
    go_on()
    for name in workers:
        units.restart(name)
        go_on()
    is_reloaded = units.reload(_WEB)
    lines = units.log(_WEB).read_text().splitlines()
    assert is_reloaded, "\n".join(line for line in lines if " gunicorn.access: " not in line)[-2000:]
    go_on()


class _Polls(threading.Thread):
    """A thread that polls the status of batches over one connection. Every other request is a long poll."""

    def __init__(self, url: str, load: Load, seed: int) -> None:
        super().__init__(daemon=True)
        self._url, self._load, self._chosen = url, load, random.Random(seed)
        self._session = requests.Session()
        self.over = threading.Event()
        self.answered, self.slowest = 0, 0.0
        self.failed = Counter[str]()

    def run(self) -> None:
        while not self.over.wait(0.1):
            if not self._load.answered:
                continue
            number = self._chosen.randrange(len(self._load.answered))
            parameters = {"batchQueryId": self._load.answered[number], "wait": self._chosen.choice(("0", "5"))}
            key = {"api-key": self._load.key_of(number)}
            began = time.monotonic()
            try:
                answer = self._session.get(
                    f"{self._url}/batch-query-status", headers=key, params=parameters, timeout=TIMEOUT
                )
            except requests.RequestException as error:
                self.failed[type(error).__name__] += 1
                continue
            self.slowest = max(self.slowest, time.monotonic() - began)
            if answer.ok:
                self.answered += 1
            else:
                self.failed[f"HTTP {answer.status_code}"] += 1


def _older_version(folder: Path, commit: str) -> Path:
    """Return a folder with the older version's files from git, and its own packages."""
    archive = subprocess.run(["git", "archive", commit], cwd=PROJECT, stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder / "older", filter="data")
    older = folder / "older"
    install(older / ".venv", older / "requirements" / "service.txt")
    return older


def _wait_until_ok(url: str) -> None:
    deadline = time.monotonic() + _SECONDS_TO_START
    while True:
        try:
            answer = requests.get(url, timeout=TIMEOUT)
        except requests.RequestException:
            continue
        if answer.ok:
            return
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.2)
