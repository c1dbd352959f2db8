"""Install locked Python packages into a virtual environment: `dev/tools/install.py .venv requirements/dev.txt`.

With `--source client dev` the modules and commands of these folders become available without being copied.

uv installs the packages, which takes seconds where pip takes a minute. pip fetches uv, pinned and with hashes, into
`.uv`. If uv can't be fetched or fails, pip installs the packages. With `--by-pip`, pip installs and checks them.

The environment's npm installs a `package-lock.json`, beside it, with the options that follow `--`.

This module may import only the standard library.
"""

import argparse
import ast
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO

PROJECT = Path(__file__).resolve().parents[2]
TOOLS = PROJECT / ".uv"
UV = TOOLS / "bin" / "uv"
UV_REQUIREMENTS = PROJECT / "requirements" / "uv.txt"

# pip's settings of its registry, and uv's variables with the same meaning. pip separates values by white space, and uv
# separates some of them by commas.
UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
    "proxy": "ALL_PROXY",
}
SEPARATED_BY_COMMAS = {"find-links"}
# A command that runs the environment's Python. `-P` leaves out the current folder, whose modules could shadow ours.
COMMAND = """\
#!/bin/sh
exec "$(dirname "$0")/python" -P -c 'from {module} import {function}; {function}()' "$@"
"""
# Sections of pip's settings. The later section takes precedence.
PIP_SECTIONS = ("global", "install", ":env:")

_HERE = f"Python {sys.version_info.major}.{sys.version_info.minor} on {platform.system()} {platform.machine()}"
_TOOLS_TO_BUILD = r"(\S*-)?(gcc|g\+\+|cc|c\+\+|clang|make|cmake|rustc|cargo)"
# Causes of failures, with what uv, pip and npm print then. The last line that matches tells the cause.
CAUSES = {
    "the disk is full": "no space left on device|disk quota exceeded",
    "this user may not write there": "permission denied|operation not permitted|read-only file system",
    "a package isn't the one that is locked": r"hash mismatch for|checksum failed|^\S+==\S+ from .+ \(line \d+\)\):$",
    "the registry's name could not be resolved; is there a network?": (
        "in name resolution|name or service not known|nodename nor servname|failed to lookup address"
        "|getaddrinfo|failed with (ENOTFOUND|EAI_AGAIN)"
    ),
    "the registry's certificate isn't trusted here": (
        "certificate.verify.failed|invalid peer certificate|reason: .*certificate|failed with .*CERT"
    ),
    "the registry could not be reached": (
        "connection (refused|reset|aborted)|unreachable|no route to host|timed out|connect to proxy|tunnel error"
        "|reason: (connect|read|network|socket)|failed with E(CONN|NET|HOST|TIMEDOUT|RR_SOCKET)"
    ),
    "the registry answered with an error": r"HTTP (status|error) |\b(client|server) error\b|npm error [45]\d\d ",
    f"a package has no wheel for {_HERE}, and no compiler is there to build it": (
        rf"no such file or directory: '{_TOOLS_TO_BUILD}'|'{_TOOLS_TO_BUILD}' failed: no such file"
        rf"|\b{_TOOLS_TO_BUILD}: (command )?not found|linker `{_TOOLS_TO_BUILD}` not found|CMAKE_C(XX)?_COMPILER"
        r"|Python\.h: no such file"
    ),
}
# Lines that also follow from the causes above.
VAGUE_CAUSES = {
    f"a package isn't there, or not for {_HERE}": (
        "no matching distribution|no (usable )?wheels|wheels are available for|not found in the"
    ),
    "a package could not be built": "failed to build|failed building wheel",
    "npm left out a package": "failed optional dependency|TAR_ENTRY_ERROR",
}
_LINE_CHARACTERS = 120


class InstallError(Exception):
    """Nothing could be installed. The message is for people."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("environment", type=Path, help="the virtual environment; it is made if it doesn't exist")
    parser.add_argument("lock", type=Path, help="the lock file, with hashes")
    parser.add_argument("npm_options", nargs="*", help="options for npm, behind --")
    parser.add_argument("--by-pip", action="store_true", help="don't use uv; check that all dependencies are there")
    parser.add_argument("--source", type=Path, nargs="+", default=[], help="folders of this project that hold modules")
    options = parser.parse_args()
    try:
        if options.lock.name == "package-lock.json":
            install_by_npm(options.environment, options.lock, options.npm_options)
        else:
            install(options.environment, options.lock, only_pip=options.by_pip)
        for source in options.source:
            link(options.environment, source)
    except (InstallError, OSError) as error:
        print(f"The packages of {options.lock} could not be installed: {error}", file=sys.stderr)
        return 1
    return 0


def install(environment: Path, requirements: Path, *, only_pip: bool = False) -> None:
    python = environment / "bin" / "python"
    if not _works(python):
        # If the environment links to a Python that was removed, it can't be repaired and is made again.
        venv.EnvBuilder(symlinks=True, clear=environment.is_dir() and not environment.is_symlink()).create(environment)
    _make_tools()
    log = environment / "install.log"
    with log.open("w") as log_file:
        if not only_pip:
            try:
                _get_uv(log_file)
                _by_uv(python, requirements, log_file)
            except (OSError, subprocess.CalledProcessError):
                print("uv could not install it; now pip tries, which takes about a minute ...", flush=True)
            else:
                return
        try:
            _by_pip(python, requirements, log_file)
            if only_pip:
                _run([*_pip(python), "check"], log_file)
        except subprocess.CalledProcessError:
            raise InstallError(f"{why(log.read_text(errors='replace'))}\n{log} says more.") from None


def install_by_npm(environment: Path, lock: Path, options: Sequence[str]) -> None:
    """Install npm packages beside their lock file, by the npm of an environment."""
    programs, log = environment.resolve() / "bin", environment / "npm.log"
    command: list[str | Path] = [programs / "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    command += ["--loglevel=verbose", *options]
    variables = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    with log.open("w") as log_file:
        done = subprocess.run(command, cwd=lock.parent, env=variables, stdout=log_file, stderr=log_file, check=False)
    output = log.read_text(errors="replace")
    # npm leaves out a platform's package, such as anvil, and cuts files on a full disk, without calling it a failure.
    if done.returncode or re.search("failed optional dependency|TAR_ENTRY_ERROR", output):
        raise InstallError(f"{why(output)}\n{log} says more.")


def why(log: str) -> str:
    """Return the cause for which the last command of a log failed, and the line that tells it."""
    lines = [line.strip() for line in log.rpartition("\n$ ")[2].splitlines() if line.strip()]
    for causes in (CAUSES, VAGUE_CAUSES):
        for line in reversed(lines):
            for cause, pattern in causes.items():
                if match := re.search(pattern, line, re.IGNORECASE):
                    begin = min(match.start(), max(match.end() - _LINE_CHARACTERS, 0))
                    return f"{cause}\n  {'... ' if begin else ''}{line[begin:][: 2 * _LINE_CHARACTERS]}"
    return lines[-1][: 2 * _LINE_CHARACTERS] if lines else "it printed nothing"


def link(environment: Path, source: Path) -> None:
    """Make a folder's modules, and a distribution's commands, available in an environment without copying them.

    Nothing is built, so no network is needed. Paths are relative, so a checkout that links to another checkout's
    environment gets its own modules.
    """
    (packages,) = environment.glob("lib/python3*/site-packages")
    distribution = source / "pyproject.toml"
    modules = source / "src" if distribution.exists() else source
    (packages / f"{source.name}.pth").write_text(f"{os.path.relpath(modules.resolve(), packages.resolve())}\n")
    if not distribution.exists():
        return
    for name, place in tomllib.loads(distribution.read_text())["project"]["scripts"].items():
        module, _, function = place.partition(":")
        command = environment / "bin" / name
        command.write_text(COMMAND.format(module=module, function=function))
        command.chmod(0o755)


def _works(python: Path) -> bool:
    try:
        return subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def _make_tools() -> None:
    """Make the environment that has uv.

    It gets a pip only if the Python that runs this has none, because installing pip takes seconds.
    """
    is_there = _works(TOOLS / "bin" / "python")
    if is_there and (_has_pip() or (TOOLS / "bin" / "pip").exists()):
        return
    if not _has_pip() and find_spec("ensurepip") is None:
        raise InstallError("Python's venv module is missing; on Debian: apt-get install python3-venv")
    try:
        # If only pip is missing, another Python made the folder. Then only pip is added.
        venv.EnvBuilder(symlinks=True, clear=not is_there, with_pip=not _has_pip()).create(TOOLS)
    except subprocess.CalledProcessError as error:
        raise InstallError(why(error.output.decode(errors="replace"))) from None


def _has_pip() -> bool:
    """Return whether the Python that runs this has a pip that can install into other environments."""
    try:
        version = importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        return False
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2]) >= (22, 3)


def _get_uv(log_file: IO[str]) -> None:
    pinned = UV_REQUIREMENTS.read_text()
    installed = TOOLS / UV_REQUIREMENTS.name
    if installed.exists() and installed.read_text() == pinned and UV.exists():
        return
    command = [*_pip(TOOLS / "bin" / "python"), "install", "--quiet", "--only-binary", ":all:"]
    command += ["--require-hashes", "-r", UV_REQUIREMENTS]
    _run(command, log_file)
    installed.write_text(pinned)


def _by_uv(python: Path, requirements: Path, log_file: IO[str]) -> None:
    # The lock has all dependencies, so none are looked up. Hashes decide what may be installed, so any of several
    # registries may provide it, as with pip.
    command: list[str | Path] = [UV, "pip", "install", "--python", python, "--no-deps", "--require-hashes"]
    command += ["--index-strategy", "unsafe-best-match", "-r", requirements]
    variables = uv_settings(_pip_settings())
    if variables.pop("UV_NO_INDEX", "").lower() in {"1", "true", "yes", "on"}:
        command.append("--no-index")  # uv has no variable for this option
    _run(command, log_file, env=os.environ | variables)


def _by_pip(python: Path, requirements: Path, log_file: IO[str]) -> None:
    # pip below 24.1 takes an extra, such as that of `coverage[toml]`, for a package that the lock lacks.
    command = [*_pip(python), "install", "--quiet", "--no-deps", "--require-hashes", "-r", requirements]
    _run(command, log_file)


def _run(command: Sequence[str | Path], log_file: IO[str], *, env: Mapping[str, str] | None = None) -> None:
    """Run a command. Its output goes to the log, below the command itself. Raises `CalledProcessError`."""
    print("\n$", *command, file=log_file, flush=True)
    subprocess.run(command, check=True, stdout=log_file, stderr=log_file, env=env)


def _pip(python: Path) -> list[str | Path]:
    """Return the pip command for the environment of this Python."""
    runs_it = sys.executable if _has_pip() else TOOLS / "bin" / "python"
    return [runs_it, "-m", "pip", "--disable-pip-version-check", "--python", python]


def _pip_settings() -> str:
    """Return the output of `pip config list`: pip's settings from its files and the environment."""
    return subprocess.run(
        [*_pip(TOOLS / "bin" / "python"), "config", "list"], check=True, capture_output=True, text=True
    ).stdout


def uv_settings(pip_settings: str) -> dict[str, str]:
    """Return pip's settings as environment variables for uv, without variables that are set already."""
    by_section: dict[str, dict[str, str]] = {section: {} for section in PIP_SECTIONS}
    for line in pip_settings.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if section in by_section and name in UV_NAMES and value.startswith(("'", '"')):
            by_section[section][UV_NAMES[name]] = (",".join if name in SEPARATED_BY_COMMAS else " ".join)(
                ast.literal_eval(value).split()
            )
    merged = {name: value for section in PIP_SECTIONS for name, value in by_section[section].items() if value}
    return {name: value for name, value in merged.items() if name not in os.environ}


if __name__ == "__main__":
    sys.exit(main())
