"""Speed gates: the service's speed, compared with another checkout in the same run.

`make bench [BEFORE=folder]`. Both checkouts use PostgreSQL, one worker, a node with a delay of 50 ms, and daily limits.
Their chain counts as a real network. The database has 10,000 transactions of the last day. While one checkout is
measured, the other's worker is frozen. The exit code is 1 if a figure is beyond its limit.
"""

import argparse
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from campaigns.benchmarks.measured import Measured
from campaigns.benchmarks.web import multiples_of_a_peer, processor_seconds
from demo.installation import CHAIN_ID
from devnet.devchain import PROJECT
from devnet.servers import Postgres

_DAYS_TRANSACTIONS = 10_000
# A line in PostgreSQL's log.
_STATEMENT = re.compile(rb"LOG:  (?:statement|execute [^:]*): ")
_IDLE_SECONDS = 30
# Seconds after which a newcomer's batch counts as starved.
_STARVED_SECONDS = 60
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


@dataclass(frozen=True)
class Figure:
    """A measured figure. `floor` is its maximum, or its minimum if `more_is_better`."""

    name: str
    unit: str
    floor: float | None = None
    more_is_better: bool = False

    def is_kept_by(self, value: float) -> bool:
        return self.floor is None or (value >= self.floor if self.more_is_better else value <= self.floor)


EXCHANGES = Figure("one account: exchanges with the node", "", floor=16)
STATEMENTS = Figure("one account: SQL statements of all processes", "")
PROCESSOR = Figure("one account: processor time of the worker", "ms")
HUNDRED = Figure("100 batches at 100 blocks, until all are DONE", "s", floor=8)
THROUGHPUT = Figure("batches a second, 200 batches of 5 accounts", "/s", floor=25, more_is_better=True)
IDLE_PROCESSOR = Figure("an idle worker in a minute: processor time", "s")
IDLE_STATEMENTS = Figure("an idle worker in a minute: SQL statements", "")
IDLE_QUESTIONS = Figure("an idle worker in a minute: questions to the node", "")
LARGE_PROCESSOR = Figure("10,000 accounts: processor time of the worker", "s", floor=20)
LARGE_MEMORY = Figure("10,000 accounts: memory of the worker", "MiB", floor=150)
NEWCOMER = Figure("a newcomer beside 48,000 blocks of another user: later", "s", floor=5)
STATUS = Figure("status: processor time, as a multiple of FastAPI's", "", floor=1.3)
SUBMISSION = Figure("submission: processor time, as a multiple of FastAPI's", "", floor=1.3)


class Checkout(Measured):
    """The service of one checkout after a day of use, with one worker on PostgreSQL."""

    def __init__(self, running: ExitStack, project: Path) -> None:
        super().__init__(running, "runworker-postgresql", 1, project)
        assert self.postgres
        self.database = self.postgres
        self.service.manage("shell", "--no-imports", "-c", _SEED)
        self.seconds_to_done()

    @property
    def worker(self) -> int:
        return self.service.process("worker-1").pid

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


def one_account(checkout: Checkout) -> dict[Figure, float]:
    exchanges, processor = [], []
    for _ in range(5):
        checkout.settle()
        checkout.node.forget()
        before = processor_seconds(checkout.worker)
        checkout.seconds_to_done()
        exchanges.append(len(checkout.node.exchanges))
        processor.append(1000 * (processor_seconds(checkout.worker) - before))
    checkout.settle()
    with logging_statements(checkout.database):
        before_statements = statements_in(checkout.database)
        checkout.seconds_to_done()
        statements = statements_in(checkout.database) - before_statements
    return {
        EXCHANGES: statistics.median(exchanges),
        PROCESSOR: statistics.median(processor),
        STATEMENTS: statements,
    }


def hundred_batches(checkout: Checkout) -> dict[Figure, float]:
    checkout.settle()
    return {HUNDRED: checkout.seconds_of(100, 1)}


def throughput(checkout: Checkout) -> dict[Figure, float]:
    checkout.settle()
    return {THROUGHPUT: 200 / checkout.seconds_of(200, 5)}


def idle(checkout: Checkout) -> dict[Figure, float]:
    checkout.settle()
    time.sleep(10)
    checkout.node.forget()
    with logging_statements(checkout.database):
        before, statements = processor_seconds(checkout.worker), statements_in(checkout.database)
        time.sleep(_IDLE_SECONDS)
        in_a_minute = 60 / _IDLE_SECONDS
        return {
            IDLE_PROCESSOR: (processor_seconds(checkout.worker) - before) * in_a_minute,
            IDLE_STATEMENTS: (statements_in(checkout.database) - statements) * in_a_minute,
            IDLE_QUESTIONS: checkout.node.methods().total() * in_a_minute,
        }


def ten_thousand_accounts(checkout: Checkout) -> dict[Figure, float]:
    """Measure with a new worker, so that its memory shows what this batch needs."""
    checkout.service.process("worker-1").stop()
    checkout.service.start_worker("worker-1")
    checkout.seconds_to_done()
    before = processor_seconds(checkout.worker)
    checkout.seconds_to_done(10_000)
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{checkout.worker}/status").read_text())
    return {LARGE_PROCESSOR: processor_seconds(checkout.worker) - before, LARGE_MEMORY: int(peak) / 1024}


def newcomer(checkout: Checkout) -> dict[Figure, float]:
    key = checkout.a_key()
    alone = statistics.median(checkout.seconds_to_done(key=key) for _ in range(3))
    for place in range(_BATCHES):
        checkout.submit(list(range(1 + place * _APART, 1 + place * _APART + _BLOCKS)))
    beside = [checkout.seconds_to_done(key=key, seconds=_STARVED_SECONDS) for _ in range(4)]
    return {NEWCOMER: max(beside) - alone}


# The gates that change the database most come last.
GATES = [one_account, hundred_batches, throughput, idle, ten_thousand_accounts, newcomer]
# Figures by their names in `web`.
OF_WEB = {"status": STATUS, "submission": SUBMISSION}


def show(figure: Figure, now: float, before: float | None) -> bool:
    """Print a figure, and return whether it is within its limit."""
    is_kept = figure.is_kept_by(now)
    beside = f"{before:10,.1f} {now / before if before else float('nan'):7.2f}" if before is not None else ""
    floor = "" if figure.floor is None else f"{figure.floor:8,.1f}"
    print(f"{figure.name:58}{now:10,.1f} {figure.unit:4}{floor:>8} {beside}{'' if is_kept else '  BEYOND ITS FLOOR'}")
    sys.stdout.flush()
    return is_kept


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, help="the folder of another checkout")
    parser.add_argument("--only", default="", help="gates, or requests, whose name contains this")
    options = parser.parse_args()
    before = options.before.resolve() if options.before else None
    print(f"{'':58}{'now':>10} {'':4}{'floor':>8} {'before':>10} {'ratio':>7}")
    is_kept = True
    with ExitStack() as running:
        gates: list[Callable[[Checkout], dict[Figure, float]]] = [
            gate for gate in GATES if options.only in gate.__name__
        ]
        checkouts = {"now": PROJECT} | ({"before": before} if before else {})
        services = {name: Checkout(running, project) for name, project in checkouts.items()} if gates else {}
        for gate in gates:
            figures = {}
            for name, checkout in services.items():
                with ExitStack() as others:
                    for other in services.values():
                        if other is not checkout:
                            others.enter_context(other.frozen())
                    figures[name] = gate(checkout)
            for figure, now in figures["now"].items():
                is_kept &= show(figure, now, figures.get("before", {}).get(figure))
    kinds = {kind: figure for kind, figure in OF_WEB.items() if options.only in kind}
    for kind, of in multiples_of_a_peer(before, [*kinds]).items() if kinds else ():
        is_kept &= show(kinds[kind], of["now"], of.get("before"))
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
