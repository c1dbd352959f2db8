"""Installations of this project, each in a folder of its own: a service or an attester."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import requests
from eth_account import Account

from devnet.devchain import ACCOUNTS, PROJECT
from devnet.guarded_process import GuardedProcess

START_SECONDS = 120
STOP_SECONDS = 15
MANAGE = (sys.executable, "manage.py")
# The key file in an installation's chains.toml.
KEY_FILE = "signer.key"

# The wallet signs in. The payer funds the signer, and its balance is proven, because that isn't a round number.
WALLET_ADDRESS, WALLET_KEY = ACCOUNTS[0]
PAYER_ADDRESS, PAYER_KEY = ACCOUNTS[1]
# A development account could also be somebody else's who tries the demo. The service would report a stolen key.
_SIGNER = Account.create()
SIGNER_ADDRESS, SIGNER_KEY = _SIGNER.address, _SIGNER.key.to_0x_hex()


def chain_toml(chain_id: int, name: str) -> str:
    """Return the lines for a development chain on which the signer pays. `%s` is replaced by its RPC URL."""
    return f"""\
[[chains]]
id = {chain_id}
name = "{name}"
rpc_urls = ["%s"]
confirmations = 1
test_network = true
block_seconds = 1
[chains.signer]
key_file = "{KEY_FILE}"

"""


# A development chain that is connected to itself.
CHAIN_ID = 31337
CHAINS_TOML = f"""\
{chain_toml(CHAIN_ID, "Development chain")}[[connections]]
source = {CHAIN_ID}
destination = {CHAIN_ID}
block_hash_source = "native"
"""

# Variables that programs need to run. Other variables could belong to another installation.
_INHERITED = {"PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV"}


class DemoError(Exception):
    """The demo can't continue. The message is one sentence."""


class Installation:
    """A folder with chains.toml, a key and state. Its processes end when `running` closes."""

    project = PROJECT
    """The checkout that the processes run."""

    def __init__(self, running: ExitStack, folder: Path, chains_toml: str, key: str, **variables: str) -> None:
        self.folder = folder
        self._running = running
        self._processes: dict[str, GuardedProcess] = {}
        folder.mkdir(mode=0o700, exist_ok=True)
        write_private(folder / KEY_FILE, key)
        (folder / "chains.toml").write_text(chains_toml)
        inherited = {name: value for name, value in os.environ.items() if name in _INHERITED}
        self.environment = (
            inherited | {"STATE_DIR": str(folder), "CHAINS_FILE": str(folder / "chains.toml")} | variables
        )

    def manage(self, *arguments: str) -> str:
        """Return the output of a command of manage.py. If it fails, raise `DemoError` with its last line."""
        command = [*MANAGE, *arguments]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False, cwd=self.project
        )
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["it printed no error"]
            raise DemoError(f"manage.py {arguments[0]} failed: {lines[-1]}")
        return done.stdout

    def log(self, name: str) -> Path:
        """Return the path of the log of the process with this name."""
        return self.folder / f"{name}.log"

    def start(self, name: str, *command: str, **variables: str) -> None:
        """Start a process that must keep running."""
        self._processes[name] = self._process_of(name, *command, **variables)

    def _process_of(self, name: str, *command: str, **variables: str) -> GuardedProcess:
        environment = self.environment | variables
        with self.log(name).open("wb") as log:
            process = GuardedProcess(command, env=environment, stdout=log, stop_seconds=STOP_SECONDS, cwd=self.project)
        self._running.callback(process.stop)
        return process

    def names(self) -> list[str]:
        """Return the names of the processes that must keep running."""
        return [*self._processes]

    def process(self, name: str) -> GuardedProcess:
        return self._processes[name]

    def kill(self, name: str) -> None:
        """Kill the process with this name, like `kill -9`."""
        self._processes.pop(name).kill()

    def stop(self) -> None:
        """Stop the processes before `running` closes."""
        for process in self._processes.values():
            process.stop()
        self._processes.clear()

    def wait_until(self, is_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not is_ready():
            self.require_running()
            if time.monotonic() > deadline:
                late = f"{' and '.join(self._processes)} did not come up within {START_SECONDS} s"
                raise DemoError(f"{late}: {self.trouble() or f'the logs in {self.folder} say why.'}")
            time.sleep(0.1)

    def trouble(self) -> str:
        """Return what the processes say of their own trouble. It is empty if they say nothing."""
        return ""

    def require_running(self) -> None:
        for name, process in self._processes.items():
            if process.has_ended():
                raise DemoError(f"The {name} process has ended; {self.log(name)} says why.")


class Service(Installation):
    """The web server and a worker."""

    def __init__(
        self, running: ExitStack, folder: Path, chains_toml: str, key: str, port: int, **variables: str
    ) -> None:
        self.port = port
        self.base_url = f"http://127.0.0.1:{port}"
        # Webhooks to this machine and batches without sign-in are allowed, so that both can be tried out.
        own = {"BASE_URL": self.base_url, "WEBHOOK_ALLOW": "127.0.0.1", "PUBLIC_BATCH_LIST": "true"}
        super().__init__(running, folder, chains_toml, key, **own | variables)
        # Only the web server needs the static files. They are collected in parallel until it starts.
        self._collecting = self._process_of("collectstatic", *MANAGE, "collectstatic", "--no-input", "-v", "0")
        self.manage("migrate", "--no-input", "-v", "0")

    def deploy_registry(self, destination: int, source: int) -> str:
        """Deploy the registry and return its address."""
        return self.manage("deploy_registry", str(destination), str(source)).split()[-1]

    def deploy_reader(self, destination: int) -> str:
        """Deploy the reader of all registries on a chain and return its address."""
        return self.manage("deploy_reader", str(destination)).split()[-1]

    def serve(self) -> None:
        """Start the web server and a worker, and wait until they are healthy."""
        try:
            is_collected = self._collecting.wait(START_SECONDS) == 0
        except subprocess.TimeoutExpired:
            is_collected = False
        if not is_collected:
            raise DemoError(f"The pages' files could not be collected; {self.log('collectstatic')} says why.")
        self.start_web()
        self.start_worker()
        self.wait_until(self.is_healthy)

    def start_web(self) -> None:
        self.start_web_at(self.port, "web")

    def start_web_at(self, port: int, name: str) -> None:
        gunicorn = (sys.executable, "-m", "gunicorn", "--config", "config/gunicorn.py")
        self.start(name, *gunicorn, "--bind", f"127.0.0.1:{port}", "--threads", "8", "config.wsgi")

    def start_worker(self, name: str = "worker") -> None:
        self.start(name, *MANAGE, "runworker")

    def is_healthy(self) -> bool:
        # The server of another installation may have taken the port since it was found free.
        logs = [self.log(name).read_text() for name in self._processes if name.startswith("web")]
        return all("Listening at: " in text for text in logs) and health(self.base_url) == 200

    def trouble(self) -> str:
        try:
            problems = requests.get(f"{self.base_url}/healthz", timeout=5).json()["problems"]
        except (requests.RequestException, ValueError, KeyError):
            return ""
        return " ".join(problems)


class DemoAttester(Installation):
    """An attester on a free port, with a key and a database of its own."""

    def __init__(self, running: ExitStack, folder: Path, chain_toml: str) -> None:
        account = Account.create()
        self.address: str = account.address
        toml = f'{chain_toml}[attester]\nkey_file = "{KEY_FILE}"\n'
        super().__init__(running, folder, toml, account.key.to_0x_hex())
        self.start("attester", *MANAGE, "run_attester", "--bind", "127.0.0.1:0")

    def toml(self) -> str:
        """Wait until the attester listens. Return the lines of chains.toml that add it to a connection."""
        self.wait_until(lambda: any(map(health, self._listens())))
        return f"[[connections.attesters]]\naddress = {json.dumps(self.address)}\nurl = {json.dumps(self.url)}\n"

    @property
    def url(self) -> str:
        """Return the address at which the attester listens, or listened before it was stopped."""
        return self._listens()[0]

    def _listens(self) -> list[str]:
        return re.findall(r"listens on (\S+)\n", self.log("attester").read_text())


def health(url: str) -> int:
    """Return the HTTP status of /healthz. 0 if the server doesn't answer."""
    try:
        return requests.get(f"{url}/healthz", timeout=5).status_code
    except requests.RequestException:
        # On a busy machine the first answer may take too long.
        return 0


def write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
