"""Speed gates that a loaded machine can't fail: statements, exchanges, memory, and multiples of a script's work.

`make bench [BEFORE=folder]`. Processor time is in facts: how many facts `script.py` proves in the same time. The script
runs before and after each measurement, so that load affects both alike. Seconds are shown, and have no floor.

Each checkout has a worker, a node with a delay of 50 ms, daily limits, and 10,000 transactions of the last day. Their
chains count as real networks. While one is measured, the others' workers are frozen. The exit code is 1 if a figure is
beyond its floor. Pages have goals in milliseconds of a quiet machine.
"""

import argparse
import random
import re
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import psycopg
import requests
from eth_account import Account
from eth_utils.crypto import keccak

from campaigns.benchmarks.measured import ADDRESS_HEADER, FEE, Measured, processor_seconds
from campaigns.benchmarks.script import Script
from campaigns.bodies import balances
from demo import client
from demo.installation import CHAIN_ID
from devnet.devchain import ACCOUNTS, PROJECT
from devnet.servers import Postgres

_DAYS_TRANSACTIONS = 10_000
_BATCHES_AT_ONCE = 100
# A line in PostgreSQL's log.
_STATEMENT = re.compile(rb"LOG:  (?:statement|execute [^:]*): ")
_IDLE_SECONDS, _BEFORE_SECONDS = 30, 5
# Answers that are measured, after some with which the server fills its caches.
_ANSWERS, _WARM = 20, 3
_EVENT = "Transfer(address indexed from, address indexed to, uint256 value)"
_LOGS_OF_EVENT = 25
# A contract's creation that emits logs of this event: PUSH1, PUSH0, MSTORE; then PUSH20 and PUSH20 for two addresses,
# PUSH32 for topic 0, PUSH1, PUSH0, LOG3 for each.
_LOG = f"73{'22' * 20}73{'11' * 20}7f{keccak(b'Transfer(address,address,uint256)').hex()}60205fa3"
_LOGS = f"0x602a5f52{_LOG * _LOGS_OF_EVENT}"
# One user's batches have 48,000 blocks. The blocks overlap, because anvil would take minutes to mine more.
_BATCHES, _BLOCKS, _APART = 24, 2000, 20

# Transactions of a signer that isn't in chains.toml any more. They count against the chain's daily limit.
_SEED = f"""
from datetime import timedelta
from django.utils import timezone
from proving.models import SignedTransaction, Signer, Transaction
signer = Signer.objects.create(chain_id={CHAIN_ID}, address="0x" + "5" * 40)
sent = Transaction.objects.bulk_create(
    [Transaction(signer=signer, nonce=n, to="0x" + "6" * 40, data=b"", gas_limit=300_000, gas_used=200_000,
                 gas_price=10**9, state="FINAL", succeeded=True, hash=f"0x{{n:064x}}", block_number=1,
                 block_hash="0x" + "7" * 64, spent_at=timezone.now() - timedelta(seconds=8 * n))
     for n in range({_DAYS_TRANSACTIONS})],
    batch_size=500)
SignedTransaction.objects.bulk_create(
    [SignedTransaction(transaction=tx, hash=tx.hash, raw=b"", max_fee_per_gas=2 * 10**9, max_priority_fee_per_gas=1)
     for tx in sent],
    batch_size=500)
"""


FACTS = "facts"
POSTGRESQL, SQLITE = "runworker-postgresql", "runworker-sqlite"


@dataclass(frozen=True)
class Figure:
    """A measured figure. Each floor is its maximum on that engine: the reached value, and a tenth more."""

    name: str
    unit: str = FACTS
    postgresql: float | None = None
    sqlite: float | None = None

    def floor(self, engine: str) -> float | None:
        return self.postgresql if engine == POSTGRESQL else self.sqlite


WORKER = Figure("100 batches of one account: worker, a batch", postgresql=1.35, sqlite=1.52)
SERVICE = Figure("100 batches of one account: worker and web, a batch", postgresql=2.88, sqlite=2.7)
DATABASE = Figure("100 batches of one account: database server, a batch")
SUBMISSION = Figure("web, a submission", postgresql=1.25, sqlite=0.94)
STATUS = Figure("web, a status request", postgresql=0.33, sqlite=0.28)
SECONDS = Figure("100 batches of one account, until all are DONE", "s")
EXCHANGES = Figure("one account: exchanges with the node", "", postgresql=19)
STATEMENTS = Figure("one account: SQL statements of all processes", "", postgresql=240)
IDLE_PROCESSOR = Figure("an idle worker in a minute", postgresql=70)
IDLE_SECONDS = Figure("an idle worker in a minute: processor time", "s")
IDLE_STATEMENTS = Figure("an idle worker in a minute: SQL statements", "")
IDLE_QUESTIONS = Figure("an idle worker in a minute: questions to the node", "")
LARGE_PROCESSOR = Figure("10,000 accounts: worker, an account")
LARGE_MEMORY = Figure("10,000 accounts: memory of the worker", "MiB")
API_PAGE = Figure("web, /api/docs", "ms", sqlite=10)
CHAINS_JSON = Figure("web, /chains.json", "ms", sqlite=10)
LIST_PAGE = Figure("web, /explorer", "ms", sqlite=30)
DASHBOARD = Figure("web, /dashboard", "ms", sqlite=30)
EVENT_PAGE = Figure("web, a query with 25 logs of an event", "ms", sqlite=30)
LARGE_PAGE = Figure("web, the page of a batch with 3,000 accounts", "ms", sqlite=40)
FORM_PAGE = Figure("web, a form with 10,000 pasted lines", "ms", sqlite=300)
NEWCOMER = Figure("a newcomer beside 48,000 blocks of another user: worker", postgresql=205)
NEWCOMER_LATER = Figure("a newcomer beside 48,000 blocks of another user: later", "s")


class Checkout(Measured):
    """The service of one checkout after a day of use, with one worker."""

    def __init__(self, running: ExitStack, engine: str, project: Path) -> None:
        super().__init__(running, engine, 1, project)
        self.service.manage("shell", "--no-imports", "-c", _SEED)
        self.seconds_to_done()

    @property
    def database(self) -> Postgres:
        assert self.postgres
        return self.postgres

    def seconds(self, name: str) -> float:
        """Return the processor time so far of the worker, the web server or the database server."""
        if name != "database":
            return processor_seconds(self.service.process(name).pid)
        return processor_seconds(self.postgres._process.pid) if self.postgres and self.postgres._process else 0

    def is_done(self, batch: str) -> bool:
        """Return whether a batch is DONE, by a statement that isn't counted."""
        with psycopg.connect(self.database.url(), options="-c log_statement=none") as connection:
            row = connection.execute("SELECT status FROM queries_batch WHERE id = %s", [batch]).fetchone()
        return row == ("DONE",)

    def turn(self, *, blocks: int) -> None:
        """Run a turn of a new worker, and mine the blocks that its transactions need."""
        self.service.manage("runworker", "--once")
        self.chain.mine(blocks)

    def settle(self) -> None:
        """Let all mined transactions become final, so that they don't affect the next measurement."""
        self.chain.mine(100)
        time.sleep(5)


@contextmanager
def logging_statements(postgres: Postgres) -> Iterator[None]:
    """Let PostgreSQL log each SQL statement, which makes it slower."""
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET log_statement = 'all'")
        connection.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            connection.execute("ALTER SYSTEM SET log_statement = 'none'")
            connection.execute("SELECT pg_reload_conf()")


def statements_in(postgres: Postgres) -> int:
    """Return the number of statements that PostgreSQL has logged."""
    return len(_STATEMENT.findall((postgres.folder / "log").read_bytes()))


def hundred_batches(checkout: Checkout) -> dict[Figure, float]:
    """Measure what the worker takes beyond an idle one's polls, which are more where a machine is slow."""
    checkout.settle()
    idle = checkout.seconds("worker-1")
    time.sleep(_BEFORE_SECONDS)
    database, worker, web = map(checkout.seconds, ("database", "worker-1", "web"))
    idle = (worker - idle) / _BEFORE_SECONDS
    batches = checkout.submit_all(_BATCHES_AT_ONCE, 1)
    submissions, began = checkout.seconds("web") - web, time.monotonic()
    checkout.wait(batches)
    seconds = time.monotonic() - began
    worker = checkout.seconds("worker-1") - worker - idle * seconds
    database, web = checkout.seconds("database") - database, checkout.seconds("web")
    for batch in batches * 3:
        client.status(checkout.service.base_url, checkout.key, batch)
    answers = (checkout.seconds("web") - web) / 3
    processor = {
        WORKER: worker,
        SERVICE: worker + submissions + answers,
        **({DATABASE: database} if checkout.postgres else {}),
        SUBMISSION: submissions,
        STATUS: answers,
    }
    return {figure: value / _BATCHES_AT_ONCE for figure, value in processor.items()} | {SECONDS: seconds}


def one_account(checkout: Checkout) -> dict[Figure, float]:
    """Count what a batch adds to turns of a worker without one. Their number doesn't depend on the machine's speed."""
    checkout.service.process("worker-1").stop()
    with logging_statements(checkout.database):
        checkout.turn(blocks=100)
        checkout.node.forget()
        before, turns = statements_in(checkout.database), 0
        batch = checkout.submit([checkout.chain.head()])
        while not checkout.is_done(batch):
            checkout.turn(blocks=2)
            turns += 1
        exchanges, after = len(checkout.node.exchanges), statements_in(checkout.database)
        checkout.turn(blocks=100)
        checkout.node.forget()
        before_idle = statements_in(checkout.database)
        for _ in range(turns):
            checkout.turn(blocks=2)
        idle_statements = statements_in(checkout.database) - before_idle
    checkout.service.start_worker("worker-1")
    return {
        EXCHANGES: exchanges - len(checkout.node.exchanges),
        STATEMENTS: after - before - idle_statements,
    }


def idle(checkout: Checkout) -> dict[Figure, float]:
    checkout.settle()
    time.sleep(10)
    checkout.node.forget()
    with logging_statements(checkout.database):
        before, statements = checkout.seconds("worker-1"), statements_in(checkout.database)
        time.sleep(_IDLE_SECONDS)
        in_a_minute = 60 / _IDLE_SECONDS
        seconds = (checkout.seconds("worker-1") - before) * in_a_minute
        return {
            IDLE_PROCESSOR: seconds,
            IDLE_SECONDS: seconds,
            IDLE_STATEMENTS: (statements_in(checkout.database) - statements) * in_a_minute,
            IDLE_QUESTIONS: checkout.node.methods().total() * in_a_minute,
        }


def ten_thousand_accounts(checkout: Checkout) -> dict[Figure, float]:
    """Measure with a new worker, so that its memory shows what this batch needs."""
    checkout.service.process("worker-1").stop()
    checkout.service.start_worker("worker-1")
    checkout.seconds_to_done()
    before = checkout.seconds("worker-1")
    checkout.seconds_to_done(10_000)
    status = Path(f"/proc/{checkout.service.process('worker-1').pid}/status").read_text()
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
    return {LARGE_PROCESSOR: (checkout.seconds("worker-1") - before) / 10_000, LARGE_MEMORY: int(peak) / 1024}


def pages(checkout: Checkout) -> dict[Figure, float]:
    """Measure pages of a user with 30 small batches and a large one, by the web server's processor time."""
    url, user = checkout.service.base_url, Account.create()
    session = client.signed_in(url, user.address, user.key.to_0x_hex(), CHAIN_ID)
    session.headers["Accept"] = "text/html"
    key = client.take_api_key(url, user.address, user.key.to_0x_hex(), CHAIN_ID)
    sent = checkout.chain.rpc("eth_sendTransactionSync", {"from": ACCOUNTS[0][0], "data": _LOGS})["transactionHash"]
    asked = {"transactions": {sent: {"logs": [str(number) for number in range(_LOGS_OF_EVENT)]}}}
    body = balances([], fee=FEE) | {"data": {str(CHAIN_ID): {f"transaction:{sent}": asked}}}
    event, large = client.submit(url, key, body), checkout.submit([checkout.chain.head()], 3000, key)
    checkout.wait([event, large, *(checkout.submit([block], key=key) for block in checkout.new_blocks(30))], key)
    page = f"/explorer/query/{event}/1?{urlencode({'event': _EVENT})}"
    paths = {API_PAGE: "/api/docs", CHAINS_JSON: "/chains.json", LIST_PAGE: "/explorer", DASHBOARD: "/dashboard"}
    paths |= {EVENT_PAGE: page, LARGE_PAGE: f"/explorer/query/{large}"}
    lines = "\n".join(f"0x{random.Random(number).randrange(2**160):040x}" for number in range(10_000))
    row = {"source": str(CHAIN_ID), "at": "latest", "props": ["BALANCE"]}
    form = {f"rows-0-{name}": value for name, value in row.items()} | {"destination": str(CHAIN_ID)}
    form |= {"sender": "service", "do": "paste", "pasted": lines, "csrfmiddlewaretoken": client.csrf_token(session)}
    calls: dict[Figure, Callable[[], requests.Response]] = {
        figure: partial(session.get, url + path) for figure, path in paths.items()
    }
    calls[FORM_PAGE] = partial(session.post, f"{url}/new-batch", data=form)
    return {figure: _milliseconds(checkout, session, call) for figure, call in calls.items()}


def _milliseconds(checkout: Checkout, session: requests.Session, call: Callable[[], requests.Response]) -> float:
    """Return the web server's processor time of an answer."""
    before = 0.0
    for number in range(_WARM + _ANSWERS):
        # Each address may only use a share of the processor.
        session.headers[ADDRESS_HEADER] = f"198.51.{random.randrange(256)}.{random.randrange(256)}"
        if number == _WARM:
            before = checkout.seconds("web")
        assert call().status_code == 200
    return 1000 * (checkout.seconds("web") - before) / _ANSWERS


def newcomer(checkout: Checkout) -> dict[Figure, float]:
    key = checkout.a_key()
    alone = statistics.median(checkout.seconds_to_done(key=key) for _ in range(3))
    for place in range(_BATCHES):
        checkout.submit(list(range(1 + place * _APART, 1 + place * _APART + _BLOCKS)))
    beside, processor = [], []
    for _ in range(4):
        before = checkout.seconds("worker-1")
        beside.append(checkout.seconds_to_done(key=key))
        processor.append(checkout.seconds("worker-1") - before)
    return {NEWCOMER: statistics.median(processor), NEWCOMER_LATER: max(beside) - alone}


Gate = Callable[[Checkout], dict[Figure, float]]
# Each gate with its rounds. Those that change the database most come last.
GATES: dict[str, list[tuple[Gate, int]]] = {
    POSTGRESQL: [(hundred_batches, 5), (one_account, 2), (idle, 1), (ten_thousand_accounts, 1), (newcomer, 1)],
    SQLITE: [(hundred_batches, 5), (pages, 3)],
}


def measure(
    gate: Gate, rounds: int, checkouts: Mapping[str, Checkout], script: Script
) -> dict[str, dict[Figure, float]]:
    """Return each checkout's figures: the median of rounds where they are in facts, else the least of them."""
    values: dict[str, dict[Figure, list[float]]] = {name: defaultdict(list) for name in checkouts}
    later = script.seconds_a_fact()
    for _ in range(rounds):
        figures = {}
        for name, checkout in checkouts.items():
            with ExitStack() as others:
                for other in checkouts.values():
                    if other is not checkout:
                        others.enter_context(other.frozen())
                figures[name] = gate(checkout)
        earlier, later = later, script.seconds_a_fact()
        for name in checkouts:
            for figure, value in figures[name].items():
                values[name][figure].append(value / ((earlier + later) / 2) if figure.unit == FACTS else value)
    # A loaded machine adds polls to the counts, and takes none away.
    return {
        name: {figure: statistics.median(of) if figure.unit == FACTS else min(of) for figure, of in by_figure.items()}
        for name, by_figure in values.items()
    }


def show(figure: Figure, engine: str, now: float, before: float | None) -> bool:
    """Print a figure, and return whether it is within its floor."""
    floor = figure.floor(engine)
    is_kept = floor is None or now <= floor
    beside = f"{before:10,.2f} {now / before if before else float('nan'):7.2f}" if before is not None else ""
    limit = "" if floor is None else f"{floor:,.2f}"
    print(f"{figure.name:58}{now:10,.2f} {figure.unit:5}{limit:>9} {beside}{'' if is_kept else '  BEYOND ITS FLOOR'}")
    sys.stdout.flush()
    return is_kept


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, help="the folder of another checkout")
    parser.add_argument("--only", default="", help="gates whose name contains this, such as hundred_batches")
    options = parser.parse_args()
    folders = {"now": PROJECT} | ({"before": options.before.resolve()} if options.before else {})
    is_kept = True
    for engine, all_gates in GATES.items():
        gates = [(gate, rounds) for gate, rounds in all_gates if options.only in gate.__name__]
        if not gates:
            continue
        with ExitStack() as running:
            checkouts = {name: Checkout(running, engine, folder) for name, folder in folders.items()}
            script = Script(running, checkouts["now"])
            print(f"{engine:58}{'now':>10} {'':5}{'floor':>9} {'before':>10} {'ratio':>7}")
            print(f"{'the script, a fact':58}{1000 * script.seconds_a_fact():10,.2f} ms", flush=True)
            for gate, rounds in gates:
                figures = measure(gate, rounds, checkouts, script)
                for figure, now in figures["now"].items():
                    is_kept &= show(figure, engine, now, figures.get("before", {}).get(figure))
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
