"""`make testnet` on a terminal, with its own folder of secrets and state."""

import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from devnet.devchain import PROJECT
from tools import testnet

SECONDS = 300
SEPOLIA_NODE, OP_SEPOLIA_NODE = "URL of a node of Sepolia", "URL of a node of OP Sepolia"
PASSPHRASE, BEACON_NODE = "Passphrase for the signer's new key", "URL of a beacon node of Sepolia, for old blocks"
CTRL_C = "\x03"
# A terminal between pipes. It gives the shell a session of its own, and its Ctrl-C is a signal. If it is closed, the
# shell ends, and only then the system signals the command.
_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


class Terminal:
    """A terminal that runs `make testnet` in a folder of a test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.secrets = folder, folder / "secrets"
        (folder / testnet.CHAINS_FILE).parent.mkdir(parents=True)
        shutil.copy(PROJECT / testnet.CHAINS_FILE, folder / testnet.CHAINS_FILE)
        self.said = ""
        """The output of the command since its start."""
        self._read_to = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, *options: str, **variables: str) -> None:
        """Type `make testnet`, after the earlier command has ended."""
        self.stop()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _TERMINAL, "sh", "-c", '"$@"; exit $?', "sh", *self.command(*options)],
            cwd=PROJECT,
            env={"PATH": os.environ["PATH"], "TERM": "dumb"} | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.said, self._read_to = "", 0

    def command(self, *options: str) -> list[str]:
        """Return the command for the test's folder."""
        return ["make", "--no-print-directory", "testnet", f"ARGS=--folder '{self.folder}' {' '.join(options)}"]

    def until(self, pattern: str) -> re.Match[str]:
        """Read up to a text that hasn't been read yet."""
        while not (match := re.compile(pattern).search(self.said, self._read_to)):
            assert self._read(), f"{pattern} does not come:\n{self.said}"
        self._read_to = match.end()
        return match

    def answer(self, question: str, *answers: str) -> None:
        """Type answers, each when the command asks this question."""
        for answer in answers:
            self.until(rf"{question} \(not shown[^)]*\): ")
            self.type(f"{answer}\n")

    def type(self, text: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())
        self._process.stdin.flush()

    def interrupt(self) -> None:
        """Press Ctrl-C, and read to the end."""
        self.type(CTRL_C)
        self.ended()

    def ended(self) -> int:
        """Read to the end of the output. Return the exit code."""
        assert self._process is not None
        with self._process:
            while self._read():
                pass
            return self._process.wait(SECONDS)

    def close(self) -> None:
        """Close the terminal's window."""
        assert self._process is not None
        with self._process:
            self._process.kill()

    def stop(self) -> None:
        if self._process is not None and self._process.stdout is not None and not self._process.stdout.closed:
            with suppress(OSError):
                self.type(CTRL_C)
            self.ended()

    def _read(self) -> bool:
        """Read some output. Return whether there was any."""
        assert self._process is not None
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], SECONDS)[0], self.said
        read = os.read(self._process.stdout.fileno(), 65536)
        self.said += read.decode(errors="replace").replace("\r\n", "\n")
        return bool(read)


def wait_until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def files(folder: Path) -> dict[str, tuple[int, str]]:
    """Return the mode and the content of each file, by its name."""
    return {path.name: (path.stat().st_mode & 0o777, path.read_text()) for path in folder.iterdir()}
