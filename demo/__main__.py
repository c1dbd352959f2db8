"""Runs the demo. State lives in `.demo/`, made anew at each start."""

import argparse
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, NoReturn

import requests

from chains.devchain import ACCOUNTS, DevChain, DevChainError
from chains.guarded import GuardedProcess
from demo import client
from demo.client import ClientError
from demo.display import Display

PROJECT = Path(__file__).resolve().parent.parent
CHAIN_ID = 31337
START_SECONDS = 30
DONE_SECONDS = 60
# One account signs in, another one pays for the transactions; its balance, no round number, is what is proven.
WALLET_ADDRESS, WALLET_KEY = ACCOUNTS[0]
SIGNER_ADDRESS, SIGNER_KEY = ACCOUNTS[1]

# Of the environment, what programs need to run at all.
_INHERITED = {"PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV"}
_LOCKS: list[IO[str]] = []

CHAINS_TOML = f"""\
[[chains]]
id = {CHAIN_ID}
name = "Development chain"
rpc_urls = ["%s"]
confirmations = 1
test_network = true
block_seconds = 1
[chains.signer]
key_file = "signer.key"

[[connections]]
source = {CHAIN_ID}
destination = {CHAIN_ID}
block_hash_source = "native"
"""


class DemoError(Exception):
    """Why the demo can't go on, one plain sentence."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--once", action="store_true", help="end after the read; exit 0 only if the value is right")
    parser.add_argument("--state", type=Path, default=PROJECT / ".demo", help="folder to make anew and keep all in")
    parser.add_argument("--port", type=int, default=8000, help="of the web server (make demo PORT=...)")
    parser.add_argument("--rpc-port", type=int, default=8545, help="of the development chain (make demo RPC_PORT=...)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with ExitStack() as running:
            is_right, processes = run(running, options.state.resolve(), options.port, options.rpc_port)
            if options.once:
                return 0 if is_right else 1
            print("\nServing until Ctrl-C.", flush=True)
            while True:
                _require_running(processes)
                time.sleep(0.5)
    except KeyboardInterrupt:
        print("\nStopped.")
    except (DemoError, DevChainError, ClientError) as error:
        print(error, file=sys.stderr)
        return 1
    except requests.RequestException as error:
        print(f"The service does not answer ({type(error).__name__}); its log is in {options.state}.", file=sys.stderr)
        return 1
    return 0


def run(running: ExitStack, state: Path, port: int, rpc_port: int) -> tuple[bool, dict[str, GuardedProcess]]:
    """Start everything, prove one balance and read it. Returns whether the value is right, and what runs."""
    _require_free_port(port, "PORT")
    _require_free_port(rpc_port, "RPC_PORT")
    _clear(state)

    print("Starting a development chain with a block every second ...", flush=True)
    chain = running.enter_context(DevChain(chain_id=CHAIN_ID, block_seconds=1, port=rpc_port))
    _write_private(state / "signer.key", SIGNER_KEY)
    (state / "chains.toml").write_text(CHAINS_TOML % chain.url)
    base_url = f"http://127.0.0.1:{port}"
    # Nothing of an installation that the same shell may be set up for.
    env = {name: value for name, value in os.environ.items() if name in _INHERITED}
    env |= {"STATE_DIR": str(state), "CHAINS_FILE": str(state / "chains.toml"), "BASE_URL": base_url}

    print("Deploying the facts registry ...", flush=True)
    _manage(env, "migrate", "--no-input", "-v", "0")
    _manage(env, "collectstatic", "--no-input", "-v", "0")
    registry = _manage(env, "deploy_registry", str(CHAIN_ID), str(CHAIN_ID)).split()[-1]

    print("Starting the web server and the worker ...", flush=True)
    gunicorn = [sys.executable, "-m", "gunicorn", "--config", "config/gunicorn.py", "--bind", f"127.0.0.1:{port}"]
    commands = {
        "web": [*gunicorn, "--threads", "4", "config.wsgi"],
        "worker": [sys.executable, "manage.py", "runworker"],
    }
    processes = {
        name: running.enter_context(_process(state / f"{name}.log", command, env)) for name, command in commands.items()
    }
    _wait_until_healthy(base_url, processes)

    print("Signing in with a wallet and taking its API key ...", flush=True)
    api_key = client.take_api_key(base_url, WALLET_ADDRESS, WALLET_KEY, CHAIN_ID)

    block = chain.head()
    print(f"Asking for the balance of {SIGNER_ADDRESS} at block {block} ...\n", flush=True)
    entry = {"props": ["BALANCE"], "slots": []}
    data = {str(CHAIN_ID): {f"block:{block}": {"accounts": {SIGNER_ADDRESS: entry}}}}
    internal_id = client.submit(base_url, api_key, {"destinationChainId": str(CHAIN_ID), "fee": "0", "data": data})
    env_file = _write_env(
        state / "env",
        BASE_URL=base_url,
        API_KEY=api_key,
        RPC_URL=chain.url,
        CHAIN_ID=str(CHAIN_ID),
        FACTS_REGISTRY=registry,
        QUERY_ID=internal_id,
    )
    with Display() as display:
        client.follow(base_url, api_key, internal_id, display.show, DONE_SECONDS)

    word = client.account_field(chain.url, registry, SIGNER_ADDRESS, block, client.BALANCE)
    balance = int.from_bytes(word)
    expected = int(client.rpc(chain.url, "eth_getBalance", SIGNER_ADDRESS, hex(block)), 16)
    print(f"\naccountField({SIGNER_ADDRESS}, {block}, BALANCE) on {registry}:")
    print(f"  word     0x{word.hex()}")
    print(f"  decimal  {balance} wei")
    print(f"  ETH      {balance // 10**18}.{balance % 10**18:018d}")
    is_right = balance == expected
    print("  equal to eth_getBalance at that block" if is_right else f"  WRONG: eth_getBalance says {expected}")
    print(f"\nExplorer  {base_url}/explorer/query/{internal_id}")
    print("API docs  " + base_url + "/api/docs")
    print(f"For the README's examples:  set -a; . {os.path.relpath(env_file)}; set +a", flush=True)
    return is_right, processes


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 (the signal's signature)
    raise KeyboardInterrupt


def _require_free_port(port: int, variable: str) -> None:
    with socket.socket() as probe:
        # As servers bind: a port whose last connections are only winding down is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise DemoError(
                f"Port {port} is in use. Stop what uses it, or choose another one: make demo {variable}={port + 1}"
            ) from None


def _clear(state: Path) -> None:
    """A fresh chain needs a fresh database. Only a folder that a demo made is emptied, and none that one is using."""
    mark = state / ".made-by-demo"
    if state.exists() and any(state.iterdir()) and not mark.exists():
        raise DemoError(f"{state} was not made by a demo; it is left as it is.")
    state.mkdir(mode=0o700, exist_ok=True)
    lock = mark.open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise DemoError(
            f"Another demo is using {state}; stop it first, or choose another folder with --state."
        ) from None
    _LOCKS.append(lock)
    for entry in state.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry != mark:
            entry.unlink()


def _manage(env: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "manage.py", *arguments]
    done = subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True, check=False)  # noqa: S603 (ours)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise DemoError(f"manage.py {arguments[0]} failed: {said[-1]}")
    return done.stdout


@contextmanager
def _process(log_file: Path, command: list[str], env: dict[str, str]) -> Iterator[GuardedProcess]:
    with log_file.open("wb") as log:
        process = GuardedProcess(command, env=env, stdout=log, stop_seconds=15)
        try:
            yield process
        finally:
            process.stop()


def _wait_until_healthy(base_url: str, processes: dict[str, GuardedProcess]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        _require_running(processes)
        try:
            if requests.get(f"{base_url}/healthz", timeout=5).ok:
                return
        except requests.ConnectionError:
            pass
        time.sleep(0.1)
    raise DemoError(f"The service did not come up within {START_SECONDS} s; its logs say why.")


def _require_running(processes: dict[str, GuardedProcess]) -> None:
    for name, process in processes.items():
        if process.has_ended():
            raise DemoError(f"The {name} process has ended; {name}.log says why.")


def _write_env(path: Path, **values: str) -> Path:
    _write_private(path, "".join(f"{name}={value}\n" for name, value in values.items()))
    return path


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


if __name__ == "__main__":
    sys.exit(main())
