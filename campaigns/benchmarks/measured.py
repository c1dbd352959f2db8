"""The service on one of its engines, with some workers and a node at the usual distance."""

import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from eth_account import Account

from campaigns.benchmarks.distant_node import DistantNode
from campaigns.bodies import balances
from demo import client
from demo.cluster import Cluster
from demo.installation import CHAIN_ID, CHAINS_TOML, SIGNER_KEY, Service
from devnet.devchain import PROJECT, DevChain
from devnet.ports import free_port
from devnet.servers import Postgres, Redis

AWAY_SECONDS = 0.05
# anvil keeps 3,600 states by default, and more blocks than that are mined here.
_STATES = ("--max-persisted-states", "100000")
_CHAIN = CHAINS_TOML.replace("test_network = true", "daily_limit = '1000'\ndaily_limit_per_user = '500'")
FEE = 10**20
_LIMITS = ("MAX_BATCHES_PER_MINUTE", "MAX_QUERIES_PER_BATCH", "MAX_QUERIES_PER_MINUTE", "MAX_OPEN_BATCHES")
ADDRESS_HEADER = "X-Client-Address"
_VARIABLES = dict.fromkeys(_LIMITS, "1000000") | {"ALLOWED_ADDRESSES": "*", "CLIENT_ADDRESS_HEADER": ADDRESS_HEADER}
# A busy machine takes long.
_PATIENCE_SECONDS = 3600


class CheckedOut(Service):
    """The service of a checkout."""

    def __init__(
        self, project: Path, running: ExitStack, folder: Path, chains_toml: str, variables: dict[str, str]
    ) -> None:
        self.project = project
        super().__init__(running, folder, chains_toml, SIGNER_KEY, free_port(), **variables)


def processor_seconds(pid: int) -> float:
    """Return the user and system time so far of a process and its children, ended ones too."""
    # The process name is in parentheses and may contain spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    seconds = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    threads = Path(f"/proc/{pid}/task").iterdir()
    children = [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    return seconds + sum(map(processor_seconds, children))


class Measured:
    """A web server, workers, a chain and a database. The chain counts as a real network."""

    def __init__(self, running: ExitStack, engine: str, workers: int, project: Path = PROJECT) -> None:
        self.chain = running.enter_context(DevChain(chain_id=CHAIN_ID, block_seconds=1, extra_args=_STATES))
        for _ in range(28):  # anvil answers only when all blocks of a request are mined
            self.chain.mine(100)
        self.node = running.enter_context(DistantNode(self.chain.url, AWAY_SECONDS))
        self.postgres = running.enter_context(Postgres()) if "postgresql" in engine else None
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        variables, toml = dict(_VARIABLES), _CHAIN % self.node.url
        if self.postgres:
            variables["DATABASE_URL"] = self.postgres.url()
        self.chain.rpc("anvil_setBalance", Account.from_key(SIGNER_KEY).address, hex(10**24))
        if "celery" in engine:
            variables["BROKER_URL"] = running.enter_context(Redis()).url()
            self.service: CheckedOut | Cluster = Cluster(running, folder, toml, SIGNER_KEY, free_port(), **variables)
        else:
            self.service = CheckedOut(project, running, folder, toml, variables)
        self.registry = self.service.deploy_registry(CHAIN_ID, CHAIN_ID)
        self.service.start_web_at(self.service.port, "web")
        self._workers = [f"worker-{number}" for number in range(1, workers + 1)]
        for name in self._workers:
            self.service.start_worker(name)
        self.service.wait_until(self.service.is_healthy)
        self.key = self.a_key()
        self._first_block = 10
        self._accounts = random.Random(1)

    def a_key(self) -> str:
        account = Account.create()
        return client.take_api_key(self.service.base_url, account.address, account.key.to_0x_hex(), CHAIN_ID)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze the workers during the `with` block."""
        self._send(signal.SIGSTOP)
        try:
            yield
        finally:
            self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        for name in self._workers:
            os.kill(self.service.process(name).pid, number)

    def submit(self, blocks: list[int], accounts: int = 1, key: str = "") -> str:
        """Submit a batch with new accounts at these blocks, and return its id."""
        names = [f"0x{self._accounts.randrange(2**160):040x}" for _ in range(accounts)]
        return client.submit(self.service.base_url, key or self.key, balances(blocks, names, fee=FEE))

    def new_blocks(self, count: int) -> list[int]:
        """Return blocks that no earlier batch has named."""
        self._first_block += count
        return list(range(self._first_block - count, self._first_block))

    def wait(self, batches: list[str], key: str = "") -> None:
        """Wait until the batches are DONE. Raise `ClientError` if one is rejected or takes an hour."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for batch in batches:
            while self._status(batch, key) != "DONE":
                if time.monotonic() > deadline:
                    raise client.ClientError(f"batch {batch} is not DONE after {_PATIENCE_SECONDS} s")
                time.sleep(0.1)

    def _status(self, batch: str, key: str) -> str:
        try:
            return client.status(self.service.base_url, key or self.key, batch)
        except client.ServiceDown as error:
            return str(error)

    def seconds_to_done(self, accounts: int = 1, key: str = "") -> float:
        began = time.monotonic()
        self.wait([self.submit([self.chain.head()], accounts, key)], key)
        return time.monotonic() - began

    def seconds_of(self, count: int, accounts: int) -> float:
        """Return the seconds until `count` batches, each at a new block, are DONE. Time starts when the workers do."""
        batches, began = self.submit_all(count, accounts), time.monotonic()
        self.wait(batches)
        return time.monotonic() - began

    def submit_all(self, count: int, accounts: int) -> list[str]:
        """Submit batches, each at a new block, while the workers are frozen. Return their ids."""
        blocks, batches = self.new_blocks(count), list[str]()
        while len(batches) < count:
            # A worker that is frozen during a write holds SQLite's lock. It continues before the next try.
            with self.frozen(), suppress(client.ServiceDown):
                while len(batches) < count:
                    batches.append(self.submit([blocks[len(batches)]], accounts))
        return batches
