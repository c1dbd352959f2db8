"""Run `make demo` as a new user does."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from batch_query_client.command_line.output import amount
from devnet.devchain import PROJECT
from tests.demo.commands import demo, processes_with, run, serving, variables


@pytest.fixture
def command(tmp_path) -> list[str]:
    return demo("demo", tmp_path / "demo")


def test_once_it_proves_the_balance_shows_every_step_and_leaves_no_process(command, tmp_path):
    done = run([*command, "--once"])
    assert done.returncode == 0, done.stdout + done.stderr
    steps = re.findall(r"(\w+) +COMPLETED", done.stdout)
    assert steps == ["INITIAL_STATE", "BLOCKHASH_AVAILABLE", "HEADER_ACCUMULATED", "ACCOUNT_ACCUMULATED"]
    assert "equal to eth_getBalance on chain 31337 at that block" in done.stdout
    (word,) = re.findall(r"word +0x([0-9a-f]{64})", done.stdout)
    (decimal,) = re.findall(r"decimal +(\d+) wei", done.stdout)
    assert int(word, 16) == int(decimal) > 0
    # `bqs` prints the fact last.
    by_bqs = done.stdout.partition("bqs read ")[2]
    assert re.search(rf"BALANCE +{re.escape(amount(int(decimal)))}$", by_bqs, re.MULTILINE)
    assert not processes_with(str(tmp_path))
    # The processes have ended, so the demo prints none of their addresses.
    assert "http://127.0.0.1" not in done.stdout
    assert "env" not in done.stdout.split("The demo ends here.")[1]
    assert not (tmp_path / "demo" / "env").exists()
    for log in ("web.log", "worker.log"):
        assert "bqs_" not in (tmp_path / "demo" / log).read_text()
    assert "bqs_" not in done.stdout


@pytest.mark.long
def test_it_serves_until_ctrl_c_and_leaves_no_process(command, tmp_path):
    with serving(command) as output:
        (url,) = re.findall(r"Explorer +(\S+)", output)
        assert "DONE" in requests.get(url, timeout=30).text
        assert variables(tmp_path / "demo")["BASE_URL"] in url
    assert not processes_with(str(tmp_path))
    assert not (tmp_path / "demo" / "env").exists()


@pytest.fixture
def port_in_use() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


IN_USE = r"Port {} is in use\. Stop what uses it, or choose another one, such as {}\d+\.\n"


@pytest.mark.parametrize(("option", "variable"), [("--port", "PORT"), ("--rpc-port", "RPC_PORT")])
def test_a_port_in_use_is_said_in_a_sentence(command, tmp_path, port_in_use, option, variable):
    command[command.index(option) + 1] = str(port_in_use)
    done = run(command)
    assert done.returncode == 1
    assert re.fullmatch(IN_USE.format(port_in_use, f"{variable}="), done.stderr)
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize(
    ("target", "chosen"),
    [
        *[("demo", "PORT="), ("demo", "RPC_PORT="), ("demo-cross-chain", "PORT="), ("demo-rollup", "RPC_PORT=")],
        *[("demo-any-block", "PORT="), ("demo-cluster", "PORT="), ("testnet", "PORT=")],
        *[("run", "BIND=127.0.0.1:"), ("run", "BIND=0.0.0.0:")],
    ],
)
def test_make_tells_a_port_in_use_before_it_installs_anything(tmp_path, port_in_use, target, chosen):
    checkout = copy_without_packages(tmp_path)
    done = run(["make", "-C", str(checkout), target, f"{chosen}{port_in_use}"])
    assert done.returncode == 2
    assert re.match(IN_USE.format(port_in_use, re.escape(chosen)), done.stderr)
    assert sorted(entry.name for entry in checkout.iterdir()) == ["Makefile", "dev"]


def copy_without_packages(folder: Path) -> Path:
    """Return a folder with the files that `make` needs before it installs anything."""
    (folder / "dev" / "devnet").mkdir(parents=True)
    for name in ("Makefile", "dev/devnet/ports.py"):
        (folder / name).write_text((PROJECT / name).read_text())
    return folder


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("PORT=0", "PORT is '0', and must be a port from 1 to 65535."),
        ("PORT=x", "PORT is 'x', and must be a port from 1 to 65535."),
        ("RPC_PORT=65536", "RPC_PORT is '65536', and must be a port from 1 to 65535."),
    ],
)
def test_make_refuses_a_wrong_port_in_a_sentence(tmp_path, setting, sentence):
    done = run(["make", "-C", str(copy_without_packages(tmp_path)), "demo", setting])
    assert done.returncode == 2
    assert done.stderr.startswith(f"{sentence}\n")


def test_a_folder_that_no_demo_made_is_left_alone(command, tmp_path):
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "thesis.txt").write_text("years of work")
    assert run(command).returncode == 1
    assert (tmp_path / "demo" / "thesis.txt").exists()
