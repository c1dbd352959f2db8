"""A wrong setting ends the start with one sentence."""

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from devnet.devchain import PROJECT

GUNICORN = ["-m", "gunicorn", "--config", "config/gunicorn.py", "--bind", "127.0.0.1:0", "--workers", "2"]
COMMANDS = {
    "manage.py": ["manage.py", "migrate"],
    "worker": ["manage.py", "runworker"],
    "web": [*GUNICORN, "config.wsgi"],
    "attester": ["manage.py", "run_attester"],
    "celery": ["-m", "celery", "-A", "proving.celery_app", "worker"],
}


def start(command: str, folder: object, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "STATE_DIR": str(folder)} | variables
    return subprocess.run(
        [sys.executable, *COMMANDS[command]],
        cwd=PROJECT,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def migrated(tmp_path_factory) -> Path:
    """Return a folder with a valid database, in which no start here changes anything."""
    folder: Path = tmp_path_factory.mktemp("state")
    start("manage.py", folder)
    return folder


WRONG = {
    "BASE_URL": "foo",
    "ALLOWED_HOSTS": "b.example, https://a.example",
    "MAX_OPEN_BATCHES": "0",
    "OPERATOR_WEBHOOK_URL": "ftp://a/key",
}
SENTENCES = [
    "BASE_URL: Must look like https://example.org, not 'foo'.",
    "ALLOWED_HOSTS: Must be names of hosts such as a.example, or .example, without port, not 'https://a.example'.",
    "MAX_OPEN_BATCHES: Must be greater than or equal to 1.",
    "OPERATOR_WEBHOOK_URL must be an http or https URL.",
    "OPERATOR_WEBHOOK_SECRET must be whsec_ and the base64 of 24 to 64 bytes, if there is a URL.",
]
NO_FOLDER = {"STATE_DIR": "/dev/null/state"}, ["STATE_DIR: /dev/null/state can't be used: Not a directory."]


@pytest.mark.long("celery-variables4-sentences4", "web-variables5-sentences5", "attester-variables6-sentences6")
@pytest.mark.parametrize(
    ("command", "variables", "sentences"),
    [*((command, WRONG, SENTENCES) for command in COMMANDS), ("web", *NO_FOLDER), ("attester", *NO_FOLDER)],
)
def test_each_wrong_setting_is_said_in_a_sentence(tmp_path, command, variables, sentences):
    done = start(command, tmp_path, **variables)
    assert (done.returncode, done.stdout) == (1, "")
    # gunicorn first reports its own start.
    lines = done.stderr.splitlines()
    assert lines[-len(sentences) :] == sentences
    assert all(" INFO gunicorn.error: " in line for line in lines[: -len(sentences)])


# Browsers send each of the first ones otherwise, and Django refuses requests to the last ones.
HOSTS = {
    "https://Prover.Example": "https://prover.example ['prover.example']",
    "https://prover.example:443/": "https://prover.example ['prover.example']",
    "http://prover.example:8000": "http://prover.example:8000 ['prover.example']",
    "http://[::1]:8000": "http://[::1]:8000 ['[::1]']",
    "https://b\u00fccher.example": "BASE_URL: Write the name as browsers send it, with xn--",
    **dict.fromkeys(
        [
            *("https://b%C3%BCcher.example", "https://prover_1.example", "https://prover.example."),
            *("https://prover.example#a", "https://prover..example", "https://a:b@prover.example"),
        ],
        "BASE_URL: Must look like https://example.org",
    ),
}


@pytest.mark.parametrize("url", HOSTS)
def test_a_base_url_is_as_browsers_send_it_or_refused(tmp_path, url):
    program = "from config import settings; print(settings.BASE_URL, settings.ALLOWED_HOSTS)"
    env = {"PATH": os.environ["PATH"], "STATE_DIR": str(tmp_path), "BASE_URL": url, "PYTHONUTF8": "1"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout + done.stderr).startswith(HOSTS[url])


@pytest.mark.long
@pytest.mark.parametrize(("command", "file"), [("worker", "missing.toml"), ("web", "")])
def test_chains_that_can_not_be_read_end_the_start(migrated, tmp_path, command, file):
    done = start(command, migrated, CHAINS_FILE=str(tmp_path / file))
    reason = "No such file or directory" if file else "Is a directory"
    assert done.returncode == 1
    assert f"{tmp_path / file} can't be used:\n- it can't be read: {reason}\n" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_an_address_that_is_none_ends_the_start_of_the_web_server(migrated):
    done = start("web", migrated, ALLOWED_ADDRESSES="eip155:1:0x1234")
    assert done.returncode == 1
    assert "ALLOWED_ADDRESSES holds 'eip155:1:0x1234', which is neither an address" in done.stderr
    assert "Traceback" not in done.stderr


UNREADABLE = {
    "DEBUG": ("maybe", "Not a valid boolean."),
    "LOG_LEVEL": ("loud", "Not a valid log level."),
    "KEEP_PROOFS_DAYS": ("0", "Must be a number of days, 1 or more, or never."),
    "MAX_QUERIES_PER_MINUTE": ("9999", "Must be greater than or equal to 10000."),
    "METRICS_TOKEN_FILE": ("/dev/null", "The file that it names is unreadable or empty."),
    "CLIENT_ADDRESS_HEADER": ("HTTP_X_REAL_IP", "Must be a header's name such as X-Real-IP, not 'HTTP_X_REAL_IP'."),
}


def test_values_that_can_not_be_read_stop_the_start(tmp_path):
    done = start("manage.py", tmp_path, **{name: value for name, (value, _) in UNREADABLE.items()})
    assert done.returncode == 1
    assert sorted(done.stderr.splitlines()) == sorted(f"{name}: {said}" for name, (_, said) in UNREADABLE.items())


def test_a_database_that_can_not_be_used_is_said_without_its_password(tmp_path):
    done = start("manage.py", tmp_path, DATABASE_URL="mysql://user:secret@host/name")
    assert done.returncode == 1
    assert done.stderr == "DATABASE_URL must be postgresql://user:password@host:port/database.\n"


@pytest.mark.long("worker", "web", "attester", "celery")
@pytest.mark.parametrize("command", COMMANDS)
def test_options_of_a_database_that_only_other_programs_know_end_the_start(tmp_path, command):
    url = "postgresql://user:secret@127.0.0.1:1/name?sslmode=disable&schema=public&pgbouncer=true&pool=no"
    done = start(command, tmp_path, DATABASE_URL=url)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "DATABASE_URL has options that PostgreSQL's library libpq doesn't know: pgbouncer, pool, schema. "
        "Leave them out."
    )
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["migrate"], ["check", "--deploy"]])
def test_a_database_that_does_not_answer_is_connected_to_once_and_said_in_a_sentence(tmp_path, arguments):
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as threads:
        port = server.getsockname()[1]
        connections: list[socket.socket] = []

        def close_all() -> None:
            with suppress(OSError):
                while True:
                    connections.append(server.accept()[0])
                    connections[-1].close()

        threads.submit(close_all)
        url = f"postgresql://user:secret@127.0.0.1:{port}/name?sslmode=disable&gssencmode=disable"
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=PROJECT,
            env={"PATH": os.environ["PATH"], "STATE_DIR": str(tmp_path), "DATABASE_URL": url},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        server.shutdown(socket.SHUT_RDWR)
    assert (done.returncode, done.stdout, len(connections)) == (1, "", 1)
    assert done.stderr.startswith("CommandError: The database can't be opened: connection failed: ")
    assert len(done.stderr.splitlines()) == 1
    assert "secret" not in done.stderr


ERA_FILES = """
[[chains]]
id = 1
name = "A chain"
rpc_urls = ["http://127.0.0.1:9"]
era_files = ["eras"]
"""


@pytest.mark.long("worker-era")
@pytest.mark.parametrize(("command", "lock"), [("manage.py", "celery"), ("worker", "era")])
def test_a_setting_whose_package_is_missing_ends_the_start_with_the_command_that_installs_it(
    migrated, tmp_path, command, lock
):
    (tmp_path / "sitecustomize.py").write_text('import sys\nsys.modules["celery"] = sys.modules["cramjam"] = None\n')
    (tmp_path / "chains.toml").write_text(ERA_FILES)
    setting = (
        {"BROKER_URL": "redis://:secret@host/0"} if lock == "celery" else {"CHAINS_FILE": str(tmp_path / "chains.toml")}
    )
    done = start(command, migrated, PYTHONPATH=str(tmp_path), **setting)
    assert done.returncode == 1
    assert f"the extra `{lock}`: pip install --no-deps --require-hashes -r requirements/{lock}.txt" in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr
    assert lock != "era" or "chains[0].era_files: needs cramjam" in done.stderr


@pytest.mark.long("https://:secret@broker", "redis://:sec/ret@broker")
@pytest.mark.parametrize(
    "url", ["secret", "https://:secret@broker", "redis://:sec/ret@broker", "amqp://", "redis://h:0"]
)
def test_a_broker_that_can_not_be_used_is_said_without_its_password(tmp_path, url):
    done = start("worker", tmp_path, BROKER_URL=url)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("BROKER_URL must be redis://")
    assert "sec" not in done.stderr.replace("password", "")


def test_a_secret_that_can_not_be_kept_is_said_in_a_sentence(tmp_path):
    # Nobody can write there, not even root, as on a read-only file system.
    (tmp_path / "secret_key").symlink_to("/dev/null/secret")
    done = start("manage.py", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{tmp_path}/secret_key can't be kept: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.long
def test_each_web_process_reads_the_settings_itself(tmp_path):
    program = """
import sys
import types
import config.gunicorn
server = types.SimpleNamespace()
config.gunicorn.on_starting(server)
config.gunicorn.on_exit(server)
print([name for name in sys.modules if name.startswith(("config.settings", "attesting.settings"))])
"""
    env = {"PATH": os.environ["PATH"], "STATE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
