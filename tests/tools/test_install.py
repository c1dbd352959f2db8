"""Install locked packages into an environment."""

import hashlib
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from devnet.devchain import PROJECT
from tools.install import link


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the installer in an empty project, and a wheel to install."""
    (tmp_path / "dev/tools").mkdir(parents=True)
    shutil.copy(PROJECT / "dev/tools/install.py", tmp_path / "dev/tools")
    (tmp_path / "requirements").mkdir()
    shutil.copy(PROJECT / "requirements/uv.txt", tmp_path / "requirements")
    wheel = tmp_path / "wheels/bqs_greeting-1-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("bqs_greeting.py", "print('hello')")
        archive.writestr("bqs_greeting-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: bqs_greeting\nVersion: 1\n")
        archive.writestr(
            "bqs_greeting-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("bqs_greeting-1.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (tmp_path / "requirements.txt").write_text(f"bqs_greeting==1 --hash=sha256:{digest}\n")
    (tmp_path / "requirements-forged.txt").write_text(f"bqs_greeting==1 --hash=sha256:{'0' * 64}\n")
    return tmp_path


def install(project: Path, requirements: str) -> subprocess.CompletedProcess[str]:
    """Run the installer without a network. pip finds wheels in a folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    told = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(project / "wheels"), "PIP_CONFIG_FILE": os.devnull}
    told["UV_CACHE_DIR"] = str(project / "cache")
    return subprocess.run(
        [sys.executable, "dev/tools/install.py", ".venv", requirements],
        cwd=project,
        env=kept | told,
        capture_output=True,
        text=True,
        check=False,
    )


def bqs_greeting(project: Path) -> str:
    return subprocess.run(
        [project / ".venv/bin/python", "-m", "bqs_greeting"], check=False, capture_output=True, text=True
    ).stdout


def test_where_uv_can_not_be_had_pip_installs_what_has_the_right_hash_and_nothing_else(project):
    done = install(project, "requirements-forged.txt")
    assert done.returncode == 1
    assert done.stderr == (
        "The Python packages could not be installed. Is there a network? .venv/install.log says more.\n"
    )
    assert "HASHES" in (project / ".venv/install.log").read_text()
    assert bqs_greeting(project) == ""
    done = install(project, "requirements.txt")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "uv could not install it; now pip tries, which takes about a minute ...\n"
    assert bqs_greeting(project) == "hello\n"


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """Return a checkout whose environment links to the checkout's own distribution."""
    checkout = tmp_path / "checkout"
    package = checkout / "greeting/src/bqs_greeting"
    package.mkdir(parents=True)
    (checkout / "greeting/pyproject.toml").write_text('[project.scripts]\ngreet = "bqs_greeting.hello:main"\n')
    (package / "hello.py").write_text("import sys\n\ndef main():\n    print('hello', *sys.argv[1:])\n    sys.exit(3)\n")
    venv.EnvBuilder(symlinks=True).create(checkout / ".venv")
    for _ in range(2):
        link(checkout / ".venv", checkout / "greeting")
    return checkout


def greet(checkout: Path) -> tuple[int, str]:
    done = subprocess.run(
        [".venv/bin/greet", "to you"],
        cwd=checkout,
        check=False,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    return done.returncode, done.stdout + done.stderr


def test_a_distribution_of_the_project_is_there_without_being_built(linked):
    assert greet(linked) == (3, "hello to you\n")
    imported = [".venv/bin/python", "-c", "import bqs_greeting.hello as it; print(it.__file__)"]
    output = subprocess.run(imported, cwd=linked, check=False, capture_output=True, text=True).stdout
    assert Path(output.strip()) == linked / "greeting/src/bqs_greeting/hello.py"
