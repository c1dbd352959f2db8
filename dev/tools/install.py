"""Install locked Python packages into a virtual environment: `dev/tools/install.py .venv requirements/dev.txt`.

With `--source client dev` the modules and commands of these folders become available without being copied.

uv installs the packages, which takes seconds where pip takes a minute. pip fetches uv, pinned and with hashes, into
`.uv`. If uv can't be fetched or fails, pip installs the packages. This module may import only the standard library.
"""

import argparse
import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
import venv
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


class InstallError(Exception):
    """Nothing could be installed. The message is one sentence."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("environment", type=Path, help="the virtual environment; it is made if it doesn't exist")
    parser.add_argument("requirements", type=Path, help="the lock file, with hashes")
    parser.add_argument("--source", type=Path, nargs="+", default=[], help="folders of this project that hold modules")
    options = parser.parse_args()
    try:
        install(options.environment, options.requirements)
        for source in options.source:
            link(options.environment, source)
    except InstallError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def install(environment: Path, requirements: Path) -> None:
    python = environment / "bin" / "python"
    if not _works(python):
        # If the environment links to a Python that was removed, it can't be repaired and is made again.
        venv.EnvBuilder(symlinks=True, clear=environment.is_dir() and not environment.is_symlink()).create(environment)
    _make_tools()
    log = environment / "install.log"
    with log.open("w") as log_file:
        try:
            _get_uv(log_file)
            _by_uv(python, requirements, log_file)
        except (OSError, subprocess.CalledProcessError):
            print("uv could not install it; now pip tries, which takes about a minute ...", flush=True)
            try:
                _by_pip(python, requirements, log_file)
            except subprocess.CalledProcessError:
                raise InstallError(
                    f"The Python packages could not be installed. Is there a network? {log} says more."
                ) from None


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
    try:
        # If only pip is missing, another Python made the folder. Then only pip is added.
        venv.EnvBuilder(symlinks=True, clear=not is_there, with_pip=not _has_pip()).create(TOOLS)
    except (OSError, subprocess.CalledProcessError):
        raise InstallError("Python's venv module is missing; on Debian: apt-get install python3-venv") from None


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
    subprocess.run(command, check=True, stdout=log_file, stderr=log_file)
    installed.write_text(pinned)


def _by_uv(python: Path, requirements: Path, log_file: IO[str]) -> None:
    # The lock has all dependencies, so none are looked up. Hashes decide what may be installed, so any of several
    # registries may provide it, as with pip.
    command: list[str | Path] = [UV, "pip", "install", "--python", python, "--no-deps", "--require-hashes"]
    command += ["--index-strategy", "unsafe-best-match", "-r", requirements]
    variables = uv_settings(_pip_settings())
    if variables.pop("UV_NO_INDEX", "").lower() in {"1", "true", "yes", "on"}:
        command.append("--no-index")  # uv has no variable for this option
    subprocess.run(command, check=True, stdout=log_file, stderr=log_file, env=os.environ | variables)


def _by_pip(python: Path, requirements: Path, log_file: IO[str]) -> None:
    command = [*_pip(python), "install", "--quiet", "--require-hashes", "-r", requirements]
    subprocess.run(command, check=True, stdout=log_file, stderr=log_file)


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
