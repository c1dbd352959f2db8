"""What the demos have in common as commands: options, a fresh folder, free ports, serving until Ctrl-C, sentences."""

import argparse
import fcntl
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import IO, NoReturn, Protocol

import requests

from demo.client import ClientError
from demo.installation import DemoError
from devnet.devchain import PROJECT, DevChainError
from devnet.json_rpc import NodeRefused
from devnet.servers import ServerError
from tools import ports

# Where nothing else uses them.
PORT, RPC_PORT = 8000, 8545

_LOCKS: list[IO[str]] = []


class Running(Protocol):
    """Processes that must go on."""

    def require_running(self) -> None:
        """Raise an error, with a sentence, where one has ended."""


Demo = Callable[[ExitStack, argparse.Namespace], tuple[bool, Sequence[Running]]]
"""Starts everything, proves and reads. Returns whether what it read is right, and whose processes must go on."""


def parser(program: str, description: str | None, folder: str) -> argparse.ArgumentParser:
    """Return the options of each demo; `folder` is where it keeps its state, below the project's."""
    options = argparse.ArgumentParser(prog=program, description=description)
    options.add_argument(
        "--once", action="store_true", help="end after the read; exit 0 only if what was read is right"
    )
    options.add_argument("--state", type=Path, default=PROJECT / folder, help="folder to make anew and keep all in")
    options.add_argument(
        "--port", type=int, help=f"of the web server ({program} PORT=...); by default {PORT}, or a free one"
    )
    options.add_argument(
        "--rpc-port", type=int, help=f"of the development chain ({program} RPC_PORT=...); likewise {RPC_PORT}"
    )
    options.add_argument("--done-seconds", type=float, default=60, help="how long the batch may take (%(default)s)")
    return options


def main(parser: argparse.ArgumentParser, demo: Demo) -> int:
    options = parser.parse_args()
    options.state = options.state.resolve()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        options.port = ports.chosen("PORT", options.port, PORT)
        options.rpc_port = ports.chosen("RPC_PORT", options.rpc_port, RPC_PORT)
        _clear(options.state)
        with ExitStack() as running:
            is_right, processes = demo(running, options)
            if options.once:
                return 0 if is_right else 1
            # What it names ends.
            running.callback((options.state / "env").unlink, missing_ok=True)
            print("\nServing until Ctrl-C.", flush=True)
            while True:
                for process in processes:
                    process.require_running()
                time.sleep(0.5)
    except KeyboardInterrupt:
        print("\nStopped.")
    except (DemoError, DevChainError, NodeRefused, ServerError, ClientError, ports.PortInUse) as error:
        print(error, file=sys.stderr)
        return 1
    except requests.RequestException as error:
        print(f"The service does not answer ({type(error).__name__}); its log is in {options.state}.", file=sys.stderr)
        return 1
    return 0


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _clear(state: Path) -> None:
    """Empty the folder: a fresh chain needs a fresh database. It must be made by a demo, and in use by none."""
    mark = state / ".made-by-demo"
    if state.exists() and any(state.iterdir()) and not mark.exists():
        raise DemoError(f"{state} was not made by a demo; it is left as it is.")
    state.mkdir(mode=0o700, exist_ok=True)
    lock = mark.open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise DemoError(f"Another demo is using {state}; stop it first.") from None
    _LOCKS.append(lock)
    for entry in state.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry != mark:
            entry.unlink()
