"""The common parts of the demos: options, the folder, chains, the service, and a batch that is proven and read."""

import argparse
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import IO, Any, NoReturn, Protocol

import requests
from eth_utils.crypto import keccak

from demo import client
from demo.client import ClientError
from demo.installation import (
    CHAIN_ID,
    PAYER_ADDRESS,
    SIGNER_ADDRESS,
    SIGNER_KEY,
    WALLET_ADDRESS,
    WALLET_KEY,
    DemoAttester,
    DemoError,
    Service,
    write_private,
)
from devnet.devchain import PROJECT, DevChain, DevChainError
from devnet.json_rpc import NodeErrorReply
from devnet.ports import PortInUse, chosen_port
from devnet.servers import ServerError

# Default ports, used if they are free.
PORT, RPC_PORT = 8000, 8545
# Seconds after which a demo says what a batch waits for.
WAIT_SECONDS = 10
# Wei that the signer gets on each chain.
SIGNER_WEI = 100 * 10**18


class DemoNode(Protocol):
    """A node of a chain."""

    chain_id: int
    url: str

    def head(self) -> int: ...


class Process(Protocol):
    """A process that must keep running."""

    def require_running(self) -> None:
        """Raise an error with a sentence if the process has ended."""


class Demo:
    """A run of a demo. Its processes end when `running` closes. Until then `processes` must keep running."""

    def __init__(self, running: ExitStack, options: argparse.Namespace) -> None:
        self.running, self.options = running, options
        self.processes: list[Process] = []
        self.service: Service
        self.readers: dict[int, str] = {}  # by destination

    def chain(self, chain_id: int = CHAIN_ID) -> DevChain:
        """Start a development chain with a block every second, and fund the signer there.

        The first chain gets the port in the options.
        """
        port = self.options.rpc_port if chain_id == CHAIN_ID else 0
        chain = self.running.enter_context(DevChain(chain_id=chain_id, block_seconds=1, port=port))
        chain.rpc("eth_sendTransaction", {"from": PAYER_ADDRESS, "to": SIGNER_ADDRESS, "value": hex(SIGNER_WEI)})
        chain.mine()
        return chain

    def attester(self, name: str, chain_toml: str) -> DemoAttester:
        """Start an attester, which signs hashes of a chain's final blocks."""
        attester = DemoAttester(self.running, self.options.state / name, chain_toml)
        self.processes.append(attester)
        return attester

    def serve(
        self, toml: str, *connections: tuple[int, int], kind: type[Service] = Service, **variables: str
    ) -> list[str]:
        """Start the service, with a registry for each pair of destination and source.

        Return the registries' addresses.
        """
        say("Deploying the facts registries")
        service = kind(self.running, self.options.state, toml, SIGNER_KEY, self.options.port, **variables)
        registries = [service.deploy_registry(*connection) for connection in connections]
        self.readers = {chain: service.deploy_reader(chain) for chain in sorted({chain for chain, _ in connections})}
        say("Starting the web server and the worker")
        service.serve()
        self.service = service
        self.processes.append(service)
        return registries

    def prove(
        self,
        destination: DevChain,
        sources: Mapping[str, tuple[DemoNode, *tuple[int | None, ...]]],
        variables: Mapping[str, str] = MappingProxyType({}),
        *,
        with_log: bool = False,
        until_wait: str = "",
    ) -> bool:
        """Prove the payer's balance on each source in one batch, and read it. Return whether all values are right.

        `sources` has a chain and blocks (None for the newest) by the registry of its facts. `with_log`: the first log
        of each block's first transaction is proven too. `variables` extend the variables for the documentation's
        examples. With `until_wait`, the code of a wait, the batch need only come to wait for that, and nothing is read.
        Raises `ClientError` if the batch is not so far in time.
        """
        url = self.service.base_url
        say("Signing in with a wallet and taking its API key")
        api_key = client.take_api_key(url, WALLET_ADDRESS, WALLET_KEY, destination.chain_id)

        requested = [
            (at, node, node.head() if block is None else block)
            for at, (node, *blocks) in sources.items()
            for block in blocks
        ]
        where = " and ".join(f"block {block} of chain {node.chain_id}" for _, node, block in requested)
        log = " and the first log" if with_log else ""
        say(f"Asking for the balance of {PAYER_ADDRESS}{log} at {where}")
        facts: dict[str, Any] = {"accounts": {PAYER_ADDRESS: {"props": ["BALANCE"], "slots": []}}}
        if with_log:
            facts["transactions"] = {"0": {"logs": ["0"]}}
        data: dict[str, Any] = {str(node.chain_id): {} for _, node, _ in requested}
        for _, node, block in requested:
            data[str(node.chain_id)][f"block:{block}"] = facts
        body = {"destinationChainId": str(destination.chain_id), "fee": "0", "data": data}
        internal_id = client.submit(url, api_key, body)
        if not self.options.once:
            print(f"Its page is {url}/explorer/query/{internal_id}", flush=True)
        printer, seconds = steps_printer(), self.options.done_seconds
        wait = client.follow(url, api_key, internal_id, printer, seconds, until_wait=until_wait)

        env = {
            "BASE_URL": url,
            "API_KEY": api_key,
            "RPC_URL": destination.url,
            "CHAIN_ID": str(destination.chain_id),
            "FACTS_REGISTRY": requested[0][0],
            "FACTS_READER": self.readers[destination.chain_id],
            "QUERY_ID": internal_id,
            "BQS_URL": url,
            "BQS_API_KEY": api_key,
            # This makes the client read from the chain instead of from the service.
            "BQS_RPC_URL": destination.url,
            **variables,
        }
        if wait:
            print(f"\n{wait}", flush=True)
            are_right = []
        else:
            are_right = [show_balance(destination, *source) for source in requested]
            are_right += [_show_log(destination, *source) for source in requested if with_log]
            are_right.append(_read_by_bqs(internal_id, env))
        if not self.options.once:
            env_file = self.options.state / "env"
            write_private(env_file, "".join(f"{name}={value}\n" for name, value in env.items()))
            # The URLs in this file stop working when the demo ends.
            self.running.callback(env_file.unlink, missing_ok=True)
            print(f"\nExplorer  {url}/explorer/query/{internal_id}")
            print(f"Ask here  {url}/new-batch  (sign in as a development account; it takes no wallet)")
            print(f"API docs  {url}/api/docs")
            print(f"For the documentation's examples:  set -a; . {os.path.relpath(env_file)}; set +a", flush=True)
        return all(are_right)


def say(text: str) -> None:
    """Print the action that begins now."""
    print(f"{text} ...", flush=True)


def parser(program: str, description: str | None, folder: str) -> argparse.ArgumentParser:
    """Return a parser with the options of every demo. `folder` is the default folder of the demo's state."""
    options = argparse.ArgumentParser(prog=program, description=description)
    options.add_argument(
        "--once", action="store_true", help="end after the read, with exit code 0 only if the values are right"
    )
    options.add_argument(
        "--state", type=Path, default=PROJECT / folder, help="folder of the demo, which is emptied first"
    )
    options.add_argument("--port", help=f"of the web server ({program} PORT=...); by default {PORT}, or a free one")
    options.add_argument("--rpc-port", help=f"of the development chain ({program} RPC_PORT=...); likewise {RPC_PORT}")
    options.add_argument("--done-seconds", type=float, default=60, help="maximum seconds for the batch (%(default)s)")
    return options


def main(parser: argparse.ArgumentParser, run: Callable[[Demo], bool]) -> int:
    """Run a demo, and return its exit code. `run` returns whether the values are right."""
    signal.signal(signal.SIGTERM, _interrupt)
    use_no_proxy()
    try:
        options = parser.parse_args()
        options.state = options.state.resolve()
        options.port = chosen_port("PORT", options.port, PORT)
        options.rpc_port = chosen_port("RPC_PORT", options.rpc_port, RPC_PORT)
        with _fresh(options.state), ExitStack() as running:
            demo = Demo(running, options)
            is_right = run(demo)
            if options.once:
                print(
                    "\nThe demo ends here. Without ONCE=1 it would keep serving the explorer and the API.", flush=True
                )
                return 0 if is_right else 1
            print("\nServing until Ctrl-C.", flush=True)
            while True:
                for process in demo.processes:
                    process.require_running()
                time.sleep(0.5)
    except KeyboardInterrupt:
        print("\nStopped.")
    except (DemoError, DevChainError, NodeErrorReply, ServerError, ClientError, PortInUse) as error:
        print(error, file=sys.stderr)
        return 1
    except requests.RequestException as error:
        print(f"The service does not answer ({type(error).__name__}); its log is in {options.state}.", file=sys.stderr)
        return 1
    return 0


def use_no_proxy() -> None:
    """Let this process and its children send each request directly. A demo is on this machine."""
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = "*"


def show_balance(destination: DemoNode, registry: str, source: DemoNode, block: int) -> bool:
    """Print the balance in the facts registry. Return whether it is equal to the source chain's."""
    word = client.account_field(destination.url, registry, PAYER_ADDRESS, block, client.BALANCE)
    balance = int.from_bytes(word)
    expected = int(client.rpc(source.url, "eth_getBalance", PAYER_ADDRESS, hex(block)), 16)
    is_right = balance == expected
    call = f"eth_getBalance on chain {source.chain_id}"
    print(f"\nChain {source.chain_id}, block {block}, as chain {destination.chain_id} knows it:")
    print(f"  call     accountField({PAYER_ADDRESS}, {block}, BALANCE) on {registry}")
    print(f"  word     0x{word.hex()}")
    print(f"  decimal  {balance} wei")
    print(f"  ETH      {balance // 10**18}.{balance % 10**18:018d}")
    print(f"  equal to {call} at that block" if is_right else f"  WRONG: {call} says {expected}", flush=True)
    return is_right


def _show_log(destination: DemoNode, registry: str, source: DemoNode, block: int) -> bool:
    """Print the hash of the first log in the facts registry. Return whether it is that of the source chain's log."""
    log_hash = client.log_hash(destination.url, registry, block, 0, 0)
    tx_hash = client.rpc(source.url, "eth_getBlockByNumber", hex(block), False)["transactions"][0]
    log = client.rpc(source.url, "eth_getTransactionReceipt", tx_hash)["logs"][0]
    words = [bytes.fromhex(word[2:]).rjust(32, b"\0") for word in (log["address"], *log["topics"])]
    is_right = log_hash == keccak(b"".join(words) + keccak(hexstr=log["data"]))
    verdict = "equal to that" if is_right else "WRONG: not that"
    print(f"  log      logHash({block}, 0, 0) is 0x{log_hash.hex()}")
    print(f"  {verdict} of eth_getTransactionReceipt on chain {source.chain_id}", flush=True)
    return is_right


def steps_printer() -> Callable[[dict[str, Any]], None]:
    began, printed, waiting_since = time.monotonic(), set[str](), dict[str, float]()

    def show(batch: dict[str, Any]) -> None:
        for query in batch["queryList"]:
            for step in query["steps"]:
                sent = step["transactionHash"] or ""
                line = f"chain {query['sourceChainId']}  {step['kind']:<20} COMPLETED  {sent}".rstrip()
                if step["status"] == "COMPLETED" and line not in printed:
                    printed.add(line)
                    print(f"  {time.monotonic() - began:5.1f} s  {line}", flush=True)
        for wait in batch["waits"]:
            waits_for = time.monotonic() - waiting_since.setdefault(wait["code"], time.monotonic())
            if waits_for > WAIT_SECONDS and wait["code"] not in printed:
                printed.add(wait["code"])
                print(f"  {time.monotonic() - began:5.1f} s  {wait['sentence']}", flush=True)

    return show


def _read_by_bqs(internal_id: str, env: Mapping[str, str]) -> bool:
    """Print the batch's facts as `bqs read` reads them from the chain. Return whether the command succeeded."""
    command = [str(Path(sys.executable).with_name("bqs")), "read", internal_id]
    done = subprocess.run(command, env=os.environ | env, capture_output=True, text=True, check=False)
    print(f"\nThe same, by the client: .venv/bin/bqs read {internal_id}")
    print(textwrap.indent(done.stdout + done.stderr, "  "), end="", flush=True)
    return done.returncode == 0


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _fresh(state: Path) -> IO[str]:
    """Empty the folder, or create it, and return the demo's lock.

    Raises `DemoError` if the folder has files that no demo has made, or if another demo is using it.
    """
    mark = state / ".made-by-demo"
    if state.exists() and any(state.iterdir()) and not mark.exists():
        raise DemoError(f"{state} was not made by a demo, and is not touched. Choose another folder.")
    state.mkdir(mode=0o700, exist_ok=True)
    lock = mark.open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise DemoError(f"Another demo is using {state}; stop it first.") from None
    for entry in state.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry != mark:
            entry.unlink()
    return lock
