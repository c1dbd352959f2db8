"""Redis may be the system's."""

import os
import shutil
import sys
from pathlib import Path

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
