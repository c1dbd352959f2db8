"""Modified copies of the project."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_PACKAGES = (".venv", ".venv-verify", ".venv-generators", ".venv-beacon", "node_modules")


@contextmanager
def copied(root: Path) -> Iterator[Path]:
    """Yield a copy of the files that git tracks or would add, with links to the same packages."""
    with TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder) / "project"
        for path in listed(root):
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / path, copy / path, follow_symlinks=False)
        # Tests read fixtures beside the project, if there are any.
        if (beside := root.parent / "shared").exists():
            (copy.parent / beside.name).symlink_to(beside)
        for name in _PACKAGES:
            if (root / name).exists() and not (copy / name).exists():
                (copy / name).symlink_to(root / name)
        yield copy


def listed(root: Path) -> list[Path]:
    """Return the project's files that git tracks or would add. Ignored files, such as secrets, are left out."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return [path for name in done.stdout.split("\0") if name and (root / (path := Path(name))).is_file()]
