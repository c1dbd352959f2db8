"""The folders that the processes of web servers count in."""

import shutil
from pathlib import Path

import pytest

from config import process_metrics

# Larger than any process identifier (proc(5), pid_max).
DEAD = 2**22 + 1


@pytest.fixture
def memory(tmp_path: Path, monkeypatch) -> Path:
    """Stands for /dev/shm."""
    monkeypatch.setattr(process_metrics, "Path", lambda name: tmp_path if name == "/dev/shm" else Path(name))
    return tmp_path


def left_behind(memory: Path) -> Path:
    folder = memory / f"batch-query-service-metrics.{DEAD}.left"
    folder.mkdir()
    return folder


def test_what_a_killed_web_server_left_is_removed(memory):
    left = left_behind(memory)
    made = Path(process_metrics.make_folder())
    assert [*memory.iterdir()] == [made]
    assert not left.exists()


def test_another_web_server_may_remove_it_first(memory, monkeypatch):
    left = left_behind(memory)

    def listed(folder, pattern):
        shutil.rmtree(left)
        return [left]

    monkeypatch.setattr(type(memory), "glob", listed)
    made = Path(process_metrics.make_folder())
    assert [*memory.iterdir()] == [made]
