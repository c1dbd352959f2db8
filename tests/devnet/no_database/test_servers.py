"""Servers: where Redis comes from, and what is left of them."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE

import pytest

from devnet.servers import Redis, ServerError


def test_without_a_package_of_redis_the_system_has_it_or_it_is_said_to_be_missing(tmp_path, monkeypatch):
    program = shutil.which("redis-server", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    cat = shutil.which("cat")  # the guard of processes runs it
    assert program is not None
    assert cat is not None
    monkeypatch.setattr(sys, "executable", str(tmp_path / "environment/python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerError, match=r"^Redis is missing: .*\bapt-get install redis-server\b"), Redis():
        pass
    (tmp_path / "cat").symlink_to(cat)
    (tmp_path / "redis-server").symlink_to(program)
    with Redis():
        pass  # It answers, or this raises.


def test_the_folder_of_a_server_is_removed_if_its_parent_is_killed():
    code = "from devnet.servers import Redis; server = Redis().__enter__(); print(server.folder, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE, text=True) as parent:
        assert parent.stdout is not None
        folder = Path(parent.stdout.readline().strip())
        assert folder.is_dir()
        parent.kill()
    deadline = time.monotonic() + 30
    while folder.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
