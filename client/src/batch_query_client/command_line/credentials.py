"""The service and the API key that commands use.

The key is in the system's keyring. If there is no keyring, the key is in a file that only its user may read, and `bqs
login` says so. `BQS_API_KEY` takes precedence over both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

import batch_query_client as client

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

# Seconds for retries. The limit is short because a person waits. Scripts can set BQS_PATIENCE instead.
PATIENCE_SECONDS = 15
# Seconds for retries if the service says when to ask again. Its limits last up to a minute.
_ADVISED_SECONDS = 75
_KEYRING_SERVICE = "batch-query-service"


class MissingKey(click.UsageError):
    """No API key is known for the service."""


class NoKeyring(Exception):
    """The system has no keyring, or it is locked."""


def folder() -> Path:
    return Path(click.get_app_dir("bqs"))


def service(url: str | None, *, needs_key: bool = True, patience: float = PATIENCE_SECONDS) -> client.BatchQueryService:
    """Return the service. Raises `click.UsageError` if its URL is not known, and `MissingKey` if its key isn't.

    Temporary failures are retried for `patience` seconds, and longer if the service says when to ask again, or for
    BQS_PATIENCE. With a patience of 0, nothing is retried.
    """
    at = service_url(url)
    key = api_key(at)
    if needs_key and not key:
        raise MissingKey(f"There is no API key for {at}. Run `bqs login {at}`, or set BQS_API_KEY.")
    advised = 0 if os.environ.get("BQS_PATIENCE") or not patience else _ADVISED_SECONDS
    limits = client.Patience(patience and patience_seconds(patience), advised_seconds=advised)
    return client.BatchQueryService(at, api_key=key, patience=limits)


def patience_seconds(default: float = PATIENCE_SECONDS) -> float:
    try:
        return float(os.environ.get("BQS_PATIENCE") or default)
    except ValueError:
        raise click.UsageError("BQS_PATIENCE is a number of seconds.") from None


def service_url(url: str | None) -> str:
    """Return the service's URL without a trailing slash. Raises `click.UsageError`."""
    at = url or os.environ.get("BQS_URL") or _read("config.json").get("url")
    if not at or not isinstance(at, str):
        raise click.UsageError("There is no URL of a service. Run `bqs login URL`, or give --url or BQS_URL.")
    return at.rstrip("/")


def api_key(url: str) -> str:
    """Return the API key for the service. Empty if there is none."""
    if key := os.environ.get("BQS_API_KEY"):
        return key.strip()
    try:
        with _keyring() as backend:
            stored = backend.get_password(_KEYRING_SERVICE, url)
    except NoKeyring:
        stored = None
    key = stored or _read("keys.json").get(url, "")
    return key if isinstance(key, str) else ""


def remember(url: str, key: str) -> str:
    """Store the service's URL and key. Return where the key is stored, as words for a sentence."""
    _write("config.json", {"url": url})
    try:
        with _keyring() as backend:
            backend.set_password(_KEYRING_SERVICE, url, key)
    except NoKeyring:
        _write("keys.json", _read("keys.json") | {url: key})
        return f"the file {folder() / 'keys.json'}, because this system offers no keyring; only you may read it"
    _forget_in_file(url)
    return "this system's keyring"


def forget(url: str) -> None:
    """Delete the stored key of this service. The key is not revoked."""
    with suppress(NoKeyring), _keyring() as backend:
        backend.delete_password(_KEYRING_SERVICE, url)
    _forget_in_file(url)


def _forget_in_file(url: str) -> None:
    keys = _read("keys.json")
    if keys.pop(url, None) is not None:
        _write("keys.json", keys)


def is_exposed(url: str) -> bool:
    """Return whether the connection is unencrypted, so that others could read the key."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname not in {"localhost", "127.0.0.1", "::1"}


# --- Keyring and files ------------------------------------------------------------------------------------------------


@contextmanager
def _keyring() -> Iterator[KeyringBackend]:
    """Yield the system's keyring. Raises `NoKeyring`, also if the code in the `with` block fails."""
    # This import is slow, and --help doesn't need it.
    import keyring  # noqa: PLC0415
    from keyring.backends import fail, null  # noqa: PLC0415
    from keyring.errors import KeyringError  # noqa: PLC0415

    try:
        backend = keyring.get_keyring()
    except Exception:  # noqa: BLE001 (backends are plug-ins and raise many kinds of exceptions)
        raise NoKeyring from None
    if isinstance(backend, fail.Keyring | null.Keyring):
        raise NoKeyring
    try:
        yield backend
    except (KeyringError, RuntimeError, OSError):
        raise NoKeyring from None


def _read(name: str) -> dict[str, Any]:
    try:
        value = json.loads((folder() / name).read_text("utf-8-sig"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _write(name: str, value: dict[str, Any]) -> None:
    """Write the file atomically. Only this user may read it. Raises `click.UsageError`."""
    if not folder().is_absolute():
        raise click.UsageError("There is no home folder to keep this in: set HOME, or use BQS_URL and BQS_API_KEY.")
    folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    new = folder() / f".{name}.{os.getpid()}"
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(value, file)
    new.replace(folder() / name)
