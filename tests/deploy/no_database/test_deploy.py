"""Check deploy/ without a container engine or systemd."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from chains.chains_file import load_chains
from chains.configured_signers import SignerKey
from devnet.devchain import PROJECT

DEPLOY = PROJECT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
# Ten times the exposure level that `systemd-analyze security` shows. A lower level is safer.
MOST_EXPOSED = 20
MONITORING = {"prometheus", "grafana"}


# --- The image --------------------------------------------------------------------------------------------------------


def test_the_image_has_the_packages_that_are_pinned_and_no_others():
    locks = " ".join(f"-r requirements/{lock}.txt" for lock in ("service", "celery", "era"))
    assert f"--no-deps --require-hashes --only-binary :all: \\\n    {locks} " in CONTAINERFILE
    assert re.findall(r"^FROM (\S+)", CONTAINERFILE, re.MULTILINE) == ["python:3.12.8-slim"] * 2 + ["scratch"]
    assert "apt-get" not in CONTAINERFILE


def test_the_image_runs_as_nobody_in_particular_and_holds_no_secret():
    final = CONTAINERFILE.rpartition("FROM ")[2]
    assert re.search(r"^USER service$", final, re.MULTILINE)
    assert final.index("USER service") > final.index("collectstatic")
    # Programs make a secret key in STATE_DIR, which the image must not keep.
    run = re.search(r"^RUN STATE_DIR=/tmp/state python manage.py collectstatic (?:.+\\\n)*.+$", final, re.MULTILINE)
    assert run
    assert run[0].count("python ") == run[0].count("STATE_DIR=/tmp/state python ")
    assert run[0].endswith("rm -r /tmp/state")
    assert not re.search(r"(SECRET|PASSWORD|KEY|DATABASE_URL)\w*=", CONTAINERFILE)


def test_all_that_is_copied_is_sent_to_the_builder():
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", CONTAINERFILE, re.MULTILINE)
    sent = (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
    assert sent[0] == "**"
    assert {f"!{path}" for path in copied} == {line for line in sent if line.startswith("!")}
    assert [path for path in copied if not (PROJECT / path).exists()] == []


@pytest.mark.long
def test_the_copied_files_collect_migrate_and_make_keys_alone(tmp_path):
    """Run the image's steps in a folder with only the copied files, using this environment's packages."""
    for path in re.findall(r"^COPY (?!--from)(.+) \S+$", CONTAINERFILE, re.MULTILINE):
        source, target = PROJECT / path, tmp_path / "app" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    env = {"STATE_DIR": str(tmp_path / "state"), "PATH": "/usr/bin:/bin"}
    keystore = ["make_keystore", "signer.json", "signer.password"]
    for command in (["collectstatic", "--no-input"], ["migrate", "--no-input"], ["prune"], keystore):
        run = subprocess.run(
            [sys.executable, "manage.py", *command],
            cwd=tmp_path / "app",
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
    assert (tmp_path / "state/static/staticfiles.json").exists()
    # Without site-packages, as the client isn't among the image's packages.
    table = "import config, batch_query_client.csv_table as table; print(table.__file__)"
    found = subprocess.run(
        [sys.executable, "-S", "-c", table], cwd=tmp_path / "app", capture_output=True, text=True, check=True
    )
    assert Path(found.stdout).is_relative_to(tmp_path / "app")


# --- The health check -------------------------------------------------------------------------------------------------


@pytest.fixture
def healthz() -> Iterator[dict[str, Any]]:
    """Serve the answer that a test sets, and record requests."""
    answer: dict[str, Any] = {"status": 200, "body": {"worker": {"running": True}}}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer["host"] = self.headers["Host"]
            self.send_response(answer["status"])
            self.end_headers()
            self.wfile.write(json.dumps(answer["body"]).encode())

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        answer["address"] = f"127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield answer
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "running", "web", "worker"),
    [(200, True, 0, 0), (503, True, 0, 0), (503, False, 0, 1), (400, True, 1, 1)],
)
def test_the_health_check_tells_the_dead_from_the_troubled(healthz, status, running, web, worker):
    healthz |= {"status": status, "body": {"worker": {"running": running}}}
    assert [check(healthz["address"], what) for what in ("web", "worker")] == [web, worker]
    assert healthz["host"] == "queries.example.org"


def test_the_health_check_fails_where_nothing_answers():
    assert check("127.0.0.1:1", "web") == 1


def check(address: str, what: str) -> int:
    # No proxy of the environment is used.
    env = {
        "HEALTHCHECK_ADDRESS": address,
        "BASE_URL": "https://queries.example.org",
        "HTTP_PROXY": "http://127.0.0.1:1",
    }
    return subprocess.run([sys.executable, DEPLOY / "healthcheck.py", what], env=env, check=False).returncode


# --- Containers -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    content: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text())
    return content


def test_each_container_may_do_little(compose):
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not service.get("privileged"), name
        # Only this machine's proxy reaches a port, unless the operator publishes nginx's elsewhere.
        assert all(port.removeprefix("${BIND:-").startswith("127.0.0.1:") for port in service.get("ports", ())), name
    # Everybody comes through nginx.
    assert {name for name, service in compose["services"].items() if service.get("ports")} - MONITORING == {"nginx"}


def test_secrets_are_files_and_each_is_there(compose):
    declared = set(compose["secrets"])
    used = {secret for service in compose["services"].values() for secret in service.get("secrets", ())}
    assert used == declared
    for service in compose["services"].values():
        for name, value in service.get("environment", {}).items():
            if re.search("SECRET|PASSWORD|DATABASE_URL|CHAINS_FILE", name):
                assert str(value).removeprefix("/run/secrets/") in service["secrets"], name


def make_secrets(folder: Path, **variables: str) -> str:
    script = PROJECT / "dev/tools/compose_secrets.py"
    run = subprocess.run(
        [sys.executable, script, folder],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(PROJECT), **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout


@pytest.mark.long
def test_secrets_are_made_once_for_their_owner_alone_and_none_is_shown(compose, tmp_path):
    folder = tmp_path / "secrets"
    said = make_secrets(tmp_path, SEPOLIA_RPC_URL="https://node.example/key")
    assert "lacks URLs of nodes: write them there instead of OP_SEPOLIA_RPC_URL." in said
    assert folder.stat().st_mode & 0o777 == 0o700
    made = {path.name: path.read_text() for path in folder.iterdir()}
    assert set(made) == {Path(secret["file"]).name for secret in compose["secrets"].values()}
    assert len(made) == 10
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    owners = {path.stat().st_uid for path in folder.iterdir()}
    # Root gives them to the image's own user.
    assert owners == {os.geteuid() or 10001}
    assert f"SECRETS_OWNER={owners.pop()}\n" in (tmp_path / ".env").read_text()
    assert not [text for name, text in made.items() if text.strip() in said or "node.example" in said]
    # In a container, the file of chains lies beside these secrets, under their names there.
    assert {"signer_keystore", "signer_password"} <= set(compose["secrets"])
    chains = load_chains(folder / "chains.toml", {"OP_SEPOLIA_RPC_URL": "https://other.example"}).chains
    assert [chain.rpc_urls for chain in chains] == [("https://node.example/key",), ("https://other.example",)]
    signers = [chain.signer for chain in chains if isinstance(chain.signer, SignerKey)]
    files = [(signer.keystore_file, signer.password_file) for signer in signers]
    assert files == [(folder / "signer_keystore", folder / "signer_password")] * 2
    key = SignerKey(keystore_file=folder / "signer.json", password_file=folder / "signer.password")
    assert f"The signer is {key.address}" in said
    (folder / "grafana_password").unlink()
    again = make_secrets(tmp_path)
    assert f"made  {folder / 'grafana_password'}" in again
    assert again.count("kept ") == 10
    after = {path.name: path.read_text() for path in folder.iterdir()}
    assert {name for name in made if made[name] != after[name]} == {"grafana_password"}


def test_each_container_that_reads_secrets_runs_as_their_owner(compose):
    # PostgreSQL's begins as root.
    readers = {name for name, service in compose["services"].items() if service.get("secrets")} - {"postgres"}
    assert readers == {"migrate", "web", "worker"} | MONITORING
    assert all(compose["services"][name]["user"].startswith("${SECRETS_OWNER:-10001}:") for name in readers)


def test_each_container_waits_for_those_it_needs(compose):
    services = compose["services"]
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert services[other]["healthcheck"]["test"], (name, other)
            else:
                assert how == {"condition": "service_completed_successfully"}
    assert {name for name in services if "migrate" in services[name].get("depends_on", {})} == {"web", "worker"}
    volumes = {mount.split(":")[0] for service in services.values() for mount in service.get("volumes", ())}
    assert {name for name in volumes if not name.startswith(".")} == set(compose["volumes"])
    assert {name for name, container in services.items() if container.get("profiles")} == MONITORING


# --- systemd ----------------------------------------------------------------------------------------------------------

ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_units_are_hardened(unit: Path):
    assert ANALYZE
    command = [ANALYZE, "security", "--no-pager", "--offline=true", f"--threshold={MOST_EXPOSED}", str(unit)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-300:] + run.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_no_unit_dumps_its_memory_which_holds_keys(unit: Path):
    assert "LimitCORE=0" in unit.read_text().splitlines()


@needs_systemd
def test_units_are_right(tmp_path):
    """Check units with systemd-analyze. It needs programs that exist, so Python replaces theirs."""
    assert ANALYZE
    for unit in (DEPLOY / "systemd").iterdir():
        text = re.sub(r"=/opt/\S+/bin/\S+", f'="{sys.executable}"', unit.read_text())
        (tmp_path / unit.name).write_text(text)
    # systemd-analyze checks a template by an instance of it.
    units = [str(tmp_path / unit.name.replace("@.", "@1.")) for unit in UNITS]
    run = subprocess.run([ANALYZE, "verify", "--man=no", *units], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert not [line for line in run.stderr.splitlines() if "batch-query" in line], run.stderr
