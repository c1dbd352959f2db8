"""Targets of the Makefile in a checkout that has no packages yet, and in one without git."""

import os
import re
import shutil
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


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a folder without git, with the files that `make` needs before it installs anything."""
    (tmp_path / "checkout" / "dev" / "devnet").mkdir(parents=True)
    for name in ("Makefile", "dev/devnet/ports.py"):
        shutil.copy(PROJECT / name, tmp_path / "checkout" / name)
    return tmp_path / "checkout"


def run(folder: Path, *command: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    # The variables of the `make` that runs the tests would change what this one prints.
    env = {"PATH": path} if path else {name: os.environ[name] for name in os.environ if not name.startswith("MAKE")}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_files_are_read_as_utf_8_in_any_locale(checkout):
    asked = 'asked: ; @$(PYTHON) -c "import sys; print(sys.flags.utf8_mode)"'
    locale = ("env", "LC_ALL=de_DE.ISO-8859-1", "PYTHONUTF8=0")
    done = run(checkout, *locale, "make", "--no-print-directory", "--eval", asked, "asked")
    assert done.stdout == "1\n"


# --- Ports ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def port_in_use() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.long("demo-RPC_PORT=", "testnet-PORT=", "run-BIND=127.0.0.1:")
@pytest.mark.parametrize(
    ("target", "chosen"),
    [
        *[("demo", "PORT="), ("demo", "RPC_PORT="), ("demo-cross-chain", "PORT="), ("demo-rollup", "RPC_PORT=")],
        *[("demo-any-block", "PORT="), ("demo-cluster", "PORT="), ("testnet", "PORT=")],
        *[("run", "BIND=127.0.0.1:"), ("run", "BIND=0.0.0.0:"), ("run", "BIND=localhost:")],
    ],
)
def test_a_port_in_use_is_told_before_anything_is_installed(checkout, port_in_use, target, chosen):
    done = run(checkout, "make", target, f"{chosen}{port_in_use}")
    assert done.returncode == 2
    sentence = rf"Port {port_in_use} is in use\. Stop what uses it, or choose another one, such as {chosen}\d+\.\n"
    assert re.match(sentence, done.stderr)
    assert sorted(entry.name for entry in checkout.iterdir()) == ["Makefile", "dev"]


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("PORT=0", "PORT is '0', and must be a port from 1 to 65535."),
        ("PORT=x", "PORT is 'x', and must be a port from 1 to 65535."),
        ("RPC_PORT=65536", "RPC_PORT is '65536', and must be a port from 1 to 65535."),
    ],
)
def test_a_wrong_port_is_refused_in_a_sentence(checkout, setting, sentence):
    done = run(checkout, "make", "demo", setting)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{sentence}\n")


# --- Without git ------------------------------------------------------------------------------------------------------


def test_sentences_are_checked_without_a_checkout_of_git_too(checkout):
    assert run(checkout, "make", "sentences").returncode == 0
    (checkout / "dev" / "devnet" / "loose.py").write_text("# What it says comes last.\n")
    done = run(checkout, "make", "sentences")
    assert done.returncode == 2
    assert done.stdout.startswith("dev/devnet/loose.py:1:# What it says")


@pytest.fixture
def path_without_git(tmp_path: Path) -> str:
    """Return a PATH with programs that do nothing, and those of a shell."""
    (tmp_path / "bin").mkdir()
    for name in ("bash", "dirname", "env", "id", "sh", "true"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or name)
    for name in ("make", "nginx", "jq", "promtool"):
        (tmp_path / "bin" / name).symlink_to("true")
    return str(tmp_path / "bin")


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("sentences", "The sentences could not be searched, which needs git.\n"),
        ("weakened", "This compares with what is committed, so it needs git and a checkout.\n"),
        ("release", "A release is made of a commit, so it needs git and a checkout.\n"),
    ],
)
def test_a_target_that_needs_git_says_so_where_there_is_none(checkout, path_without_git, command, sentence):
    ready = [f"--old-file={folder}/ready" for folder in (".venv", "node_modules")]
    done = run(checkout, shutil.which("make") or "make", command, *ready, path=path_without_git)
    assert (done.returncode, done.stdout) == (2, sentence)


def test_a_release_needs_a_program_that_builds_its_image_before_anything_is_installed(checkout, path_without_git):
    (Path(path_without_git) / "git").symlink_to(shutil.which("git") or "git")
    run(checkout, "git", "init", "--quiet")
    author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    run(checkout, "git", *author, "commit", "--quiet", "--allow-empty", "--message", "First")
    before = set(checkout.iterdir())
    done = run(checkout, shutil.which("make") or "make", "release", path=path_without_git)
    sentence = "No buildah, podman or docker is here to build the image; WITHOUT_IMAGE=1 leaves it out.\n"
    assert (done.returncode, done.stdout) == (2, sentence)
    assert set(checkout.iterdir()) == before


@pytest.mark.parametrize("go", ["", "#!/bin/sh\nexit 1\n"], ids=["no Go", "an old Go"])
def test_geth_needs_a_fitting_go(checkout, path_without_git, go):
    (checkout / "dev" / "geth").mkdir()
    for name in ("go.mod", "go.sum"):
        shutil.copy(PROJECT / "dev" / "geth" / name, checkout / "dev" / "geth" / name)
    (Path(path_without_git) / "sed").symlink_to(shutil.which("sed") or "sed")
    if go:
        (Path(path_without_git) / "go").write_text(go)
        (Path(path_without_git) / "go").chmod(0o755)
    done = run(checkout, shutil.which("make") or "make", "geth", path=path_without_git)
    assert (done.returncode, done.stdout) == (2, "geth can't be built: it needs Go 1.25 or newer.\n")


def test_continuous_integration_fails_where_git_can_not_compare(checkout, path_without_git):
    (checkout / ".ci").mkdir()
    shutil.copy(PROJECT / ".ci" / "run", checkout / ".ci")
    assert run(checkout, ".ci/run", path=path_without_git).returncode != 0


# --- `make run` as a process ------------------------------------------------------------------------------------------


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
