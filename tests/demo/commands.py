"""Run the demos as separate commands, and find what they leave behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from demo.installation import STOP_SECONDS
from devnet.devchain import PROJECT
from devnet.ports import free_port


def demo(module: str, folder: Path) -> list[str]:
    """Return the demo's command, with its state in `folder` and with free ports."""
    ports = ["--port", str(free_port()), "--rpc-port", str(free_port())]
    return [sys.executable, "-m", module, "--state", str(folder), *ports, "--done-seconds", "300"]


def run(
    command: list[str], seconds: float = 900, env: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True, timeout=seconds, check=False)


@contextmanager
def serving(command: list[str]) -> Iterator[str]:
    """Run a demo until it serves, and yield its output. Then stop it as Ctrl-C does."""
    process = subprocess.Popen(
        command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0
    )
    assert process.stdout is not None
    output = ""
    while "Serving until Ctrl-C" not in output:
        line = process.stdout.readline()
        assert line, output
        output += line
    try:
        yield output
    finally:
        os.killpg(process.pid, signal.SIGINT)  # Ctrl-C in a terminal signals the group
        # Processes end one after another, each after at most STOP_SECONDS.
        output_at_end, _ = process.communicate(timeout=8 * STOP_SECONDS)
    assert process.returncode == 0, output_at_end
    assert "Traceback" not in output_at_end


def variables(folder: Path) -> dict[str, str]:
    """Return the environment variables that the demo has written for the documentation's examples."""
    return dict(line.split("=", 1) for line in (folder / "env").read_text().splitlines())


def processes_with(text: str) -> list[str]:
    """Return command lines and environments of other running processes that contain `text`."""
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            except OSError:
                continue
            if text.encode() in line + environment:
                processes.append(line.replace(b"\0", b" ").decode(errors="replace"))
    return processes
