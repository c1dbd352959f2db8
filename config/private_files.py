"""Files that only their owner may read, and that never replace an existing file."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def new_private_file(path: Path) -> Iterator[Path]:
    """Make an empty draft beside `path`, with mode 0600. Missing folders get mode 0700.

    If the `with` block succeeds, the draft becomes `path`; otherwise it is removed. Raises `FileExistsError` if `path`
    exists before the block or at its end.
    """
    if os.path.lexists(path):
        raise FileExistsError(f"{path} exists already. The command does not replace it.")
    for folder in reversed([parent for parent in path.parents if not parent.exists()]):
        folder.mkdir(mode=0o700, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        yield draft
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        try:
            # Unlike a rename, a hard link fails if the name exists.
            os.link(draft, path)
        except FileExistsError:
            raise FileExistsError(f"{path} exists already. The command does not replace it.") from None
    finally:
        draft.unlink()
