"""The image is built, and the containers of deploy/demo.yml run as written there, with the chain on this machine."""

import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from devnet.devchain import PROJECT, DevChain
from devnet.ports import free_port
from tests.deploy.releases import make_release
from tests.factories import until

pytestmark = pytest.mark.long

DEPLOY = PROJECT / "deploy"
BASE = "docker.io/library/python:3.12.8-slim"
IMAGE = "localhost/batch-query-service-test"
# In megabytes, on a Debian of 175.
MOST_MEGABYTES = 320
# podman's own limits are above those of a machine that is a container itself. crun refuses some of these.
RUN = (
    "podman",
    "run",
    "--runtime",
    "runc",
    "--network",
    "host",
    "--ulimit",
    "nofile=4096:4096",
    "--ulimit",
    "nproc=4096:4096",
)


def run(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """Build the image from these files, and yield its name."""
    if missing := [tool for tool in ("buildah", "podman", "runc") if shutil.which(tool) is None]:
        pytest.skip(f"{' and '.join(missing)} can't be found, so no image is built (Debian has packages of them)")
    if os.geteuid() != 0:
        pytest.skip("only root builds an image without user namespaces")
    if run("buildah", "pull", "--quiet", "--policy", "missing", BASE, timeout=300).returncode:
        pytest.skip(f"the base image {BASE} can't be had")
    build = ("buildah", "build", "--format", "oci", "--pull=never", "-f", "deploy/Containerfile", "-t", IMAGE, ".")
    # runc may not nest in a container.
    done = run(*build, cwd=PROJECT, env={**os.environ, "BUILDAH_ISOLATION": "chroot"})
    assert done.returncode == 0, done.stderr[-2000:]
    if (tried := run(*RUN, "--rm", IMAGE, "true")).returncode:
        pytest.skip(f"no container runs on this machine: {tried.stderr.strip()}")
    yield IMAGE
    run("podman", "rmi", "--force", IMAGE)


def test_the_image_holds_only_what_runs(image):
    (about,) = json.loads(run("podman", "image", "inspect", image).stdout)
    assert about["Size"] < MOST_MEGABYTES * 10**6
    assert about["Config"]["User"] == "service"
    # OCI images have no HEALTHCHECK. compose.yml has one for each container.
    assert "Healthcheck" not in about
    sources = (
        "find /app -path /app/.venv -prune -o ( -name '*.sol' -o -name campaigns -o -name tests -o -name docs ) -print"
    )
    found = run(
        *RUN,
        "--rm",
        image,
        "sh",
        "-c",
        f"id; {sources}; find / -xdev -name pip".replace("(", "\\(").replace(")", "\\)"),
    )
    assert found.stdout == "uid=10001(service) gid=10001(service) groups=10001(service)\n", found.stderr
    assert "No module named pip" in run(*RUN, "--rm", image, "python", "-m", "pip").stderr


@pytest.mark.release
def test_a_release_has_the_image_in_a_file(image, tmp_path):
    files = make_release(tmp_path / "release", BUILDAH_ISOLATION="chroot")
    (file,) = files.glob("batch-query-service-*.oci.tar")
    assert file.name in (files / "SHA256SUMS").read_text()
    pulled = run("podman", "pull", "--quiet", f"oci-archive:{file}").stdout.strip()
    try:
        checked = run(*RUN, "--rm", pulled, "python", "manage.py", "check")
        assert checked.returncode == 0, checked.stderr
    finally:
        run("podman", "rmi", "--force", pulled)


class Containers:
    """The containers of deploy/demo.yml, with the restrictions that it names, on this machine's network."""

    def __init__(self, running: ExitStack, image: str, folder: Path, chain_url: str) -> None:
        self._running, self._image, self._id = running, image, f"batch-query-service-{secrets.token_hex(4)}"
        self.port = free_port()
        demo = shutil.copytree(DEPLOY / "demo", folder / "demo")
        chains = demo / "chains.toml"
        chains.write_text(chains.read_text().replace("http://chain:8545", chain_url))
        text = (DEPLOY / "demo.yml").read_text()
        for old, new in (
            ("http://chain:8545", chain_url),
            ("127.0.0.1:8000", f"127.0.0.1:{self.port}"),
            ("state:/state", f"{self._id}:/state"),
            ("./demo:", f"{demo}:"),
            ("../dev:", f"{PROJECT / 'dev'}:"),
        ):
            assert old in text, old
            text = text.replace(old, new)
        self.services: dict[str, Any] = yaml.safe_load(text)["services"]
        running.callback(run, "podman", "volume", "rm", "--force", self._id)

    def name(self, service: str) -> str:
        return f"{self._id}-{service}"

    def run(self, name: str, *options: str, command: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        service = self.services[name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        restrictions = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        for path in service["tmpfs"]:
            restrictions += ["--tmpfs", path]
        for variable, value in service["environment"].items():
            restrictions += ["--env", f"{variable}={value}"]
        for volume in service["volumes"]:
            restrictions += ["--volume", volume]
        self._running.callback(run, "podman", "rm", "--force", "--time", "5", "--volumes", self.name(name))
        return run(
            *RUN,
            "--name",
            self.name(name),
            *options,
            *restrictions,
            self._image,
            *(command or service.get("command", ())),
        )

    def is_healthy(self, check: list[str]) -> bool:
        return run(*check).returncode == 0

    def log(self, name: str) -> str:
        logs = run("podman", "logs", self.name(name))
        return logs.stdout + logs.stderr


@pytest.fixture
def containers(image, tmp_path) -> Iterator[Callable[[str], Containers]]:
    with ExitStack() as running:
        yield lambda chain_url: Containers(running, image, tmp_path, chain_url)


def test_a_balance_is_proven_by_the_containers_of_the_demo(containers):
    with DevChain(block_seconds=1) as chain:
        demo = containers(chain.url)
        setup = demo.run("setup")
        assert setup.returncode == 0, setup.stderr
        # All containers have one network here, so the web server takes a free port.
        web = (
            "gunicorn",
            "--config",
            "config/gunicorn.py",
            "--bind",
            f"127.0.0.1:{demo.port}",
            "--threads",
            "8",
            "config.wsgi",
        )
        for name, command in (("web", web), ("worker", ())):
            started = demo.run(name, "--detach", command=command)
            assert started.returncode == 0, started.stderr
        checks = yaml.safe_load((DEPLOY / "compose.yml").read_text())["services"]
        for name in ("web", "worker"):
            # Another container than the web server's own asks it.
            address = f"HEALTHCHECK_ADDRESS=127.0.0.1:{demo.port}"
            check = ["podman", "exec", "--env", address, demo.name(name), *checks[name]["healthcheck"]["test"][1:]]
            until(partial(demo.is_healthy, check), f"health of {name}", says=lambda: demo.log("web"))
        balance = demo.run("balance")
        assert balance.returncode == 0, balance.stdout + balance.stderr + demo.log("worker")
        assert "equal to eth_getBalance" in balance.stdout
        assert "Traceback" not in demo.log("web") + demo.log("worker")
