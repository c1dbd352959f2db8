"""Run the demos as separate commands, and find what they leave behind."""

import os
import subprocess
import sys
from pathlib import Path

from devnet.devchain import PROJECT
from devnet.ports import free_port


def demo(module: str, folder: Path) -> list[str]:
    """Return the demo's command, with its state in `folder` and with free ports."""
    ports = ["--port", str(free_port()), "--rpc-port", str(free_port())]
    return [sys.executable, "-m", module, "--state", str(folder), *ports, "--done-seconds", "300"]


def run(command: list[str], seconds: float = 900) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=seconds, check=False)


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
