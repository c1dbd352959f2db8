"""Child processes that end with their parent, even if the parent is killed."""

import os
import shutil
import signal
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import IO

# Kills a process group and removes a folder when its standard input ends, which happens when the parent ends in any
# way. A death signal (PR_SET_PDEATHSIG) would also fire when only the thread that started the child ends, and exists
# only on Linux.
_GUARD = 'cat >/dev/null; kill -s KILL -- "-$1"; [ -z "$2" ] || rm -rf -- "$2"'


class GuardedProcess:
    """A running command in a process group of its own, so that Ctrl-C on the terminal doesn't reach it.

    `folder` is removed when the command ends. With `keeps_folder` it is removed only if we end first. `polite` is the
    signal that asks the command to end. `user` is the user that runs it, if we are root. `pass_fds` are files that it
    inherits. Raises `OSError` if the command can't be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        stdout: int | IO[bytes] = subprocess.DEVNULL,
        folder: str = "",
        keeps_folder: bool = False,
        stop_seconds: float = 5,
        cwd: Path | None = None,
        polite: signal.Signals = signal.SIGTERM,
        user: str | None = None,
        pass_fds: Collection[int] = (),
    ) -> None:
        self._folder = "" if keeps_folder else folder
        self._stop_seconds, self._polite = stop_seconds, polite
        self._is_stopped = False
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            env=dict(env),
            process_group=0,
            cwd=cwd,
            user=user,
            pass_fds=pass_fds,
        )
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(self._process.pid), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> IO[bytes]:
        """Return the stream of the command's output. `stdout` must be a pipe."""
        assert self._process.stdout is not None
        return self._process.stdout

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self, seconds: float) -> int:
        """Wait until the command ends by itself, and return its exit code.

        Raises `subprocess.TimeoutExpired` after `seconds`.
        """
        return self._process.wait(seconds)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the command, not to its group."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the whole group at once, like a power cut."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the whole group, politely first. Does nothing if it has already ended."""
        self._end(self._polite, signal.SIGKILL)

    def _end(self, *endings: signal.Signals) -> None:
        if self._is_stopped:
            return  # another group may have the number by now
        self._guard.kill()
        self._guard.communicate()
        for ending in endings:
            try:
                os.killpg(self._process.pid, ending)
                self._process.wait(self._stop_seconds)
            except ProcessLookupError:
                self._process.wait()
            except subprocess.TimeoutExpired:
                continue
            break
        self._is_stopped = True
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
