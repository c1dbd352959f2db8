"""Strict readers of environment variables. A malformed value stops the start, and the message names the variable."""

import importlib
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from django.core.exceptions import ImproperlyConfigured

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def require_settings() -> ModuleType:
    """Return the settings, or end the process with a sentence where one is wrong: a traceback would bury it."""
    name = os.environ.get("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        return importlib.import_module(name)
    except ImproperlyConfigured as error:
        sys.exit(str(error))


def env_str(name: str, default: str) -> str:
    return os.environ.get(name, default)


def env_bool(name: str, *, default: bool) -> bool:
    value = os.environ.get(name)
    if value is None:
        return default
    try:
        return _BOOLEANS[value.lower()]
    except KeyError:
        raise ImproperlyConfigured(f"{name} must be one of {', '.join(_BOOLEANS)}, not {value!r}.") from None


def env_int(name: str, default: int, *, minimum: int = 0) -> int:
    value = os.environ.get(name)
    if value is None:
        return default
    try:
        number = int(value)
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be a whole number, not {value!r}.") from None
    if number < minimum:
        raise ImproperlyConfigured(f"{name} must be at least {minimum}, not {number}.")
    return number


def env_days(name: str, default: int | None, *, minimum: int = 1) -> int | None:
    """Read a number of days. None, for ever, is written as `never` or as nothing."""
    value = os.environ.get(name)
    if value is None:
        return default
    if value in {"", "never"}:
        return None
    try:
        return env_int(name, 0, minimum=minimum)
    except ImproperlyConfigured as error:
        raise ImproperlyConfigured(f"{error} Or never.") from None


def refuse_gone(name: str, instead: str) -> None:
    """Stop the start where a setting is used that there is no more: without a word it would have no effect."""
    if name in os.environ:
        raise ImproperlyConfigured(f"{name} is no longer a setting: {instead}")


def env_choice(name: str, default: str, choices: Sequence[str]) -> str:
    value = os.environ.get(name, default)
    if value not in choices:
        raise ImproperlyConfigured(f"{name} must be one of {', '.join(choices)}, not {value!r}.")
    return value


def env_folder(name: str, default: Path) -> Path:
    """Return a folder that is there, or is made for its owner alone."""
    folder = Path(os.environ.get(name, default))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ImproperlyConfigured(f"{name} can't be used: {folder}: {error.strerror}.") from None
    return folder


def env_list(name: str, default: str = "") -> list[str]:
    return [item.strip() for item in os.environ.get(name, default).split(",") if item.strip()]


def env_secret(name: str, generated: Path) -> str:
    """Read a secret as `env_hidden` does, else return the secret in `generated`, made at the first start.

    A generated secret is in a file of its own with mode 0600. So an installation works before anything is configured,
    and never shares a secret with another one.
    """
    return env_hidden(name) or _generated_secret(name, generated)


def env_hidden(name: str) -> str:
    """Return what is in `NAME`, else in the file that `NAME_FILE` names; empty where neither is set."""
    if value := os.environ.get(name):
        return value
    if path := os.environ.get(f"{name}_FILE"):
        try:
            value = Path(path).read_text().strip()
        except OSError as error:
            raise ImproperlyConfigured(f"{name}_FILE can't be read: {error.strerror}.") from None
        if not value:
            raise ImproperlyConfigured(f"{name}_FILE names an empty file.")
        return value
    return ""


def _generated_secret(name: str, path: Path) -> str:
    try:
        return _made_or_read(name, path)
    except OSError as error:
        raise ImproperlyConfigured(
            f"{name} is not set, and can't be kept in {path.parent}: {error.strerror}. STATE_DIR must be writable."
        ) from None


def _made_or_read(name: str, path: Path) -> str:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # The file is written under another name and then linked. Of two processes that start at once, one wins and both
        # read the same secret. A process that is killed in between leaves no half-written secret behind.
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(64))
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    if not (value := path.read_text().strip()):
        raise ImproperlyConfigured(f"The generated file for {name} is empty: {path}.")
    return value
