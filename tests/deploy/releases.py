"""Make a release in a clone of this checkout, and run what users run with its files."""

import os
import subprocess
from pathlib import Path

from devnet.devchain import PROJECT

# A release lies there, below the folder in which it was made.
RELEASE = Path("build/release")
SECONDS = 600


def run(*command: str | Path, folder: Path, **variables: str) -> str:
    """Return what a command prints. It inherits nothing of the `make` and the settings that run the tests."""
    inherited = {name: os.environ[name] for name in os.environ if not name.startswith(("MAKE", "DJANGO_"))}
    done = subprocess.run(
        command, cwd=folder, env=inherited | variables, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def make_release(folder: Path, *options: str, **variables: str) -> Path:
    """Return the files that `make release` makes in a clone, with this checkout's packages."""
    run("git", "clone", "--quiet", PROJECT, folder, folder=PROJECT)
    for name in (".venv", ".uv"):
        (folder / name).symlink_to(PROJECT / name)
    there = ("--old-file=.venv/ready-for-demo", "--old-file=.uv/bin/uv")
    run("make", "release", *there, *options, folder=folder, **variables)
    return folder / RELEASE
