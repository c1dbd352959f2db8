"""`/metrics` and probes of a web server with several processes, some of which die."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.factories import until
from tests.metrics import value
from tests.serving.process import WebServer, ask, serving


@pytest.fixture
def own(tmp_path) -> Iterator[WebServer]:
    """Yield a server with two processes of one thread each."""
    with serving(tmp_path, threads=2, WEB_CONCURRENCY="2", LOG_FORMAT="json") as server:
        until(lambda: len(server.pids()[1]) == 2, "two processes", says=server.pids)
        yield server


def get(server: WebServer, path: str, *headers: str) -> tuple[int, str]:
    lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *headers]
    answer = ask(server.port, "\r\n".join([*lines, "", ""]).encode())
    return answer.status, answer.body.decode()


def counted(server: WebServer, route: str) -> float:
    return value(get(server, "/metrics")[1], "batchquery_requests_total", route=route) or 0


def folders(supervisor: int) -> list[Path]:
    return [each for each in Path("/dev/shm").glob(f"batch-query-service-metrics.{supervisor}.*") if each.is_dir()]


needs_memory = pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="there is no /dev/shm")


@pytest.mark.long
@needs_memory
def test_any_process_tells_of_all_and_no_count_is_lost_when_one_dies(own):
    supervisor, processes = own.pids()
    (folder,) = folders(supervisor)

    # Either process may accept a connection, so many requests are sent.
    def has_counts_of_both() -> bool:
        get(own, "/chain-connections")
        return len(list(folder.glob("counter_*.db"))) == 2

    until(has_counts_of_both, "counts of both", says=own.pids)
    before = counted(own, "chain-connections")
    assert {counted(own, "chain-connections") for _ in range(10)} == {before}
    for process in processes:
        os.kill(process, signal.SIGKILL)
    until(lambda: len(set(own.pids()[1]) - set(processes)) == 2, "two others", says=own.pids)
    until(own.answers, "an answer", says=own.pids)
    assert counted(own, "chain-connections") == before
    for _ in range(10):
        get(own, "/chain-connections")
    assert counted(own, "chain-connections") == before + 10
    assert value(get(own, "/metrics")[1], "batchquery_request_seconds_count", route="chain-connections")
    own.installation.stop()
    assert not folder.exists()


@pytest.fixture
def left() -> Iterator[Path]:
    """Yield a folder that is named as a running server's, which it must stay."""
    folder = Path(f"/dev/shm/batch-query-service-metrics.{os.getpid()}.running")
    folder.mkdir()
    # No server makes such a name, which must not stop the start.
    other = Path("/dev/shm/batch-query-service-metrics.1.2.3")
    other.mkdir()
    yield folder
    folder.rmdir()
    other.rmdir()


@pytest.fixture
def foreign() -> Iterator[Path]:
    """Yield a folder of another user, of a server that has ended. Nobody but root can make it."""
    folder = Path(f"/dev/shm/batch-query-service-metrics.{2**30}.ended")
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    yield folder
    folder.rmdir()


@pytest.mark.long
@needs_memory
@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of another user")
def test_a_server_removes_no_metrics_of_another_user(tmp_path, foreign):
    with serving(tmp_path, threads=2):
        assert foreign.exists()


@pytest.mark.long
@needs_memory
def test_a_server_removes_the_metrics_of_killed_ones_and_no_others(own, tmp_path, left):
    killed, _ = own.pids()
    (folder,) = folders(killed)
    own.installation.kill("web")
    assert folder.exists()
    second = tmp_path / "second"
    second.mkdir()
    with serving(second, threads=2) as server:
        until(lambda: not folder.exists(), "removal", says=server.pids)
        assert left.exists()
        assert len(folders(server.pids()[0])) == 1


@pytest.mark.long
@needs_memory
def test_a_reload_keeps_no_metrics_of_processes_that_have_ended(own):
    supervisor, before = own.pids()
    for _ in range(2):
        get(own, "/chain-connections")
    assert counted(own, "chain-connections") == 2
    (folder,) = folders(supervisor)
    os.kill(supervisor, signal.SIGHUP)
    until(lambda: len(set(own.pids()[1]) - set(before)) == len(own.pids()[1]) == 2, "two others", says=own.pids)
    until(lambda: not folder.exists(), "removal", says=own.pids)
    get(own, "/chain-connections")
    assert counted(own, "chain-connections") == 1
    assert len(folders(supervisor)) == 1
    own.installation.stop()
    assert not folders(supervisor)


def lines_of_log(server: WebServer) -> list[dict[str, Any]]:
    """Return the whole log: lines of gunicorn, access lines, and lines of the application."""
    return [json.loads(line) for line in server.installation.log("web").read_text().splitlines()]


def test_each_line_of_the_log_is_json_and_has_the_id_of_its_answer(own):
    claimed = "X-Request-Id: chosen-by-the-client"
    key = "bqs_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"
    request = f"GET /nowhere?apiKey={key} HTTP/1.1\r\nHost: 127.0.0.1\r\n{claimed}\r\nReferer: /?a={key}\r\n\r\n"
    probes = ("/healthz", "/livez", "/readyz", "/metrics")
    assert {get(own, probe)[0] for probe in probes} <= {200, 503}
    answer = ask(own.port, request.encode())
    told = answer.headers["X-Request-Id"]
    assert re.fullmatch(r"[0-9a-f]{16}", told)
    own.log("GET /nowhere")
    lines = lines_of_log(own)
    assert key[4:] not in json.dumps(lines)
    loggers = {line["logger"] for line in lines if line.get("request") == told}
    assert loggers == {"gunicorn.access", "django.request"}
    (access,) = [line for line in lines if line.get("request") == told and line["logger"] == "gunicorn.access"]
    assert (access["method"], access["path"], access["status"]) == ("GET", "/nowhere", 404)
    assert access["milliseconds"] >= 0
    assert {"gunicorn.error"} < {line["logger"] for line in lines}
    assert not {line.get("path") for line in lines}.intersection(probes), "Monitors ask several times a minute."
