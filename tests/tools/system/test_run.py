"""`make run` as a process."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from devnet.devchain import ACCOUNTS, PROJECT
from devnet.ports import free_port
from tests.fresh_installation import fresh_installation
from tests.service import chains_toml

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def start(tmp_path: Path, port: int) -> Iterator[Start]:
    """Start the web server and the worker on `port`, with a chain whose node is down."""
    chains = chains_toml(tmp_path, "http://127.0.0.1:1")
    chains.write_text(chains.read_text().replace('key_file = "signer.key"', 'key = "${SIGNER_KEY}"'))
    env = {"PATH": os.environ["PATH"], "STATE_DIR": str(tmp_path), "CHAINS_FILE": str(chains)}
    fresh_installation(tmp_path).copy_database(tmp_path)
    (tmp_path / "static").mkdir()
    started = []

    def start(**variables: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "dev/tools/run.py", "--bind", f"127.0.0.1:{port}", "--processes", "1"],
            cwd=PROJECT,
            env=env | variables,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=90)


def said_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stderr is not None
    output = ""
    while text not in output:
        line = process.stderr.readline()
        assert line, output
        output += line
    return output


def is_served(port: int) -> bool:
    try:
        return bool(requests.get(f"http://127.0.0.1:{port}/chain-connections", timeout=5).ok)
    except requests.RequestException:  # a busy machine may be too slow
        return False


@pytest.mark.long
def test_without_a_signers_key_the_web_server_goes_on_and_that_is_said(start, port):
    process = start()
    output = said_until(process, "runworker")
    assert "SIGNER_KEY" in output
    assert "The worker has ended, for the reason above. The web server goes on" in output
    while not is_served(port):
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=90)
    assert process.returncode == 0


@pytest.mark.story
def test_with_one_both_run_until_it_is_ended(start, port):
    process = start(SIGNER_KEY=ACCOUNTS[1][1])
    while not is_served(port):
        assert process.poll() is None
        time.sleep(0.1)
    process.terminate()
    _, output = process.communicate(timeout=90)
    assert process.returncode == 0
    assert "The worker has ended" not in output
    assert not is_served(port)


@pytest.mark.long
def test_make_run_ends_with_the_web_server(start, port):
    with socket.create_server(("127.0.0.1", port)):
        process = start(SIGNER_KEY=ACCOUNTS[1][1])
        _, output = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "in use" in output
