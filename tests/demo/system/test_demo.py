"""Run `make demo` as a new user does."""

import os
import re
import socket
from collections.abc import Iterator

import pytest
import requests
from eth_account import Account

from batch_query_client.command_line.output import amount
from demo.installation import KEY_FILE
from devnet.devchain import ACCOUNTS
from tests.demo.commands import demo, processes_with, run, serving, variables


@pytest.fixture
def command(tmp_path) -> list[str]:
    return demo("demo", tmp_path / "demo")


@pytest.mark.story
def test_once_it_proves_the_balance_shows_every_step_and_leaves_no_process(command, tmp_path):
    # Proxies of the environment can't reach this machine.
    dead = {name: f"{kind}://127.0.0.1:1" for name, kind in (("HTTP_PROXY", "http"), ("ALL_PROXY", "socks5"))}
    done = run([*command, "--once"], env=os.environ | dead)
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
    # Somebody who deploys with a development account must not take the signer's nonces.
    signer = Account.from_key((tmp_path / "demo" / KEY_FILE).read_text()).address
    assert signer not in dict(ACCOUNTS)
    for log in ("web.log", "worker.log"):
        assert "bqs_" not in (tmp_path / "demo" / log).read_text()
    assert "bqs_" not in done.stdout


@pytest.mark.release
def test_demo_takes_a_picture_serves_until_ctrl_c_and_leaves_no_process(command, tmp_path):
    picture = tmp_path / "picture.png"
    with serving([*command, "--picture", str(picture)]) as output:
        head = picture.read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        assert int.from_bytes(head[16:20]) == 1280
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


@pytest.mark.long
@pytest.mark.parametrize(("option", "variable"), [("--port", "PORT"), ("--rpc-port", "RPC_PORT")])
def test_a_port_in_use_is_said_in_a_sentence(command, tmp_path, port_in_use, option, variable):
    command[command.index(option) + 1] = str(port_in_use)
    done = run(command)
    assert done.returncode == 1
    assert re.fullmatch(IN_USE.format(port_in_use, f"{variable}="), done.stderr)
    assert not (tmp_path / "demo").exists()


@pytest.mark.long
def test_a_folder_that_no_demo_made_is_left_alone(command, tmp_path):
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "thesis.txt").write_text("years of work")
    assert run(command).returncode == 1
    assert (tmp_path / "demo" / "thesis.txt").exists()
