"""The file of an SQLite database."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from django.db import connection


def sqlite_file() -> Path:
    """Return the path of SQLite's file. Call this only with SQLite."""
    return Path(unquote(urlsplit(str(connection.settings_dict["NAME"])).path))
