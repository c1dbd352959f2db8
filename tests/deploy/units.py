"""Run the units in deploy/systemd without systemd: their commands, sockets, signals and timeouts.

Their restrictions are not applied here; test_deploy.py checks them with `systemd-analyze`.
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from devnet.devchain import PROJECT
from devnet.guarded_process import GuardedProcess

# Seconds, systemd's default, after which systemd stops a unit that isn't ready.
_START_SECONDS = 90
_INSTALLED = "/opt/batch-query-service"
# `sd_listen_fds` expects the socket as file descriptor 3, and the process id in LISTEN_PID.
_WITH_SOCKET = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); "
    "os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid())); os.execv(sys.argv[2], sys.argv[2:])"
)


class Unit:
    """The content of a unit file. `name` is a name for `systemctl`: batch-query-web, batch-query-worker@1."""

    def __init__(self, name: str, tree: Path = PROJECT) -> None:
        template, at, self._instance = name.partition("@")
        self.path = tree / "deploy" / "systemd" / f"{template}{at}.service"
        self._text = self.path.read_text()

    def values(self, key: str) -> list[str]:
        settings = re.findall(rf"^{key}=(.+)$", self._text, re.MULTILINE)
        return [value.replace("%i", self._instance).replace("%%", "%") for value in settings]

    def words(self, key: str) -> list[str]:
        return [word for value in self.values(key) for word in shlex.split(value)]

    def commands(self, key: str, programs: Path) -> list[list[str]]:
        """Return the commands, with programs from this folder."""
        return [
            [word.replace(f"{_INSTALLED}/.venv/bin", str(programs)) for word in shlex.split(value)]
            for value in self.values(key)
        ]

    def stop_seconds(self) -> int:
        # Seconds. systemd's default is 90.
        return int([*self.values("TimeoutStopSec"), "90"][0])

    @property
    def socket(self) -> Path:
        return self.path.with_suffix(".socket")


class Units:
    """The units of one installation. `tree` is the checkout that contains their programs, and a test may replace it.

    A tree with its own packages runs with them. Other trees run with this environment's packages.
    """

    def __init__(self, running: ExitStack, tree: Path, logs: Path, environment: Mapping[str, str]) -> None:
        self.tree, self.environment = tree, dict(environment)
        self._running, self._logs = running, logs
        self._processes: dict[str, GuardedProcess] = {}
        self._listener = running.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4096))
        self.port: int = self._listener.getsockname()[1]
        if not Unit("batch-query-web").socket.exists():
            self._listener.close()

    @property
    def _programs(self) -> Path:
        own = self.tree / ".venv" / "bin"
        return own if own.exists() else Path(sys.executable).parent

    def start(self, name: str, *instead: str) -> None:
        """Start the unit. If it reports that it is ready, wait for that. `instead` replaces the command's last
        arguments.
        """
        unit = Unit(name, self.tree)
        (command,) = unit.commands("ExecStart", self._programs)
        command = [word.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}") for word in command]
        command[len(command) - len(instead) :] = instead
        passed = []
        if unit.socket.exists():
            passed = [self._listener.fileno()]
            command = [sys.executable, "-c", _WITH_SOCKET, str(passed[0]), *command]
        with self.log(name).open("ab") as log, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
            # An empty name makes Linux choose a free abstract address, which needs no folder.
            notified.bind("")
            notified.settimeout(_START_SECONDS)
            address = "@" + notified.getsockname()[1:].decode()
            self._processes[name] = GuardedProcess(
                command,
                env=self._environment(unit) | {"NOTIFY_SOCKET": address},
                stdout=log,
                cwd=self.tree,
                pass_fds=passed,
            )
            self._running.callback(self._processes[name].stop)
            if unit.values("Type") == ["notify"]:
                assert b"READY=1" in notified.recv(4096).splitlines()

    def stop(self, name: str) -> None:
        """Stop the unit as systemd does. Fail if the unit would have to be killed."""
        process = self._processes.pop(name)
        process.send(signal.SIGTERM)
        status = process.wait(Unit(name, self.tree).stop_seconds())
        assert status == 0, f"{name} ended with {status}: {self.log(name).read_text()[-2000:]}"

    def restart(self, name: str, *instead: str) -> None:
        self.stop(name)
        self.start(name, *instead)

    def reload(self, name: str) -> bool:
        """Run the reload commands in order until one fails. Return whether all succeeded."""
        commands = Unit(name, self.tree).commands("ExecReload", self._programs)
        pid = str(self.pid(name))
        return bool(commands) and all(
            self._run(name, [word.replace("$MAINPID", pid) for word in command]) == 0 for command in commands
        )

    def run(self, name: str) -> None:
        """Run a unit's only command. Fail if the command fails."""
        (command,) = Unit(name, self.tree).commands("ExecStart", self._programs)
        status = self._run(name, command)
        assert status == 0, self.log(name).read_text()[-2000:]

    def manage(self, *arguments: str) -> str:
        """Return the output of a `manage.py` command. Raise `CalledProcessError` if it fails."""
        command = [str(self._programs / "python"), "manage.py", *arguments]
        environment = {"PATH": os.environ["PATH"]} | self.environment
        return subprocess.run(
            command, env=environment, cwd=self.tree, stdout=subprocess.PIPE, text=True, check=True
        ).stdout

    def _run(self, name: str, command: list[str]) -> int:
        with self.log(name).open("ab") as log:
            environment = self._environment(Unit(name, self.tree))
            done = subprocess.run(
                command, env=environment, cwd=self.tree, stdout=log, stderr=subprocess.STDOUT, check=False
            )
        return done.returncode

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def log(self, name: str) -> Path:
        """Return the log of all processes started under this name."""
        return self._logs / f"{name}.log"

    def _environment(self, unit: Unit) -> dict[str, str]:
        variables = dict(word.split("=", 1) for word in unit.words("Environment"))
        return {"PATH": os.environ["PATH"]} | variables | self.environment
