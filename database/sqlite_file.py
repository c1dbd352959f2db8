"""The file of SQLite."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from django.db import connection


def sqlite_file() -> Path:
    """Return the database's file, where the database is SQLite."""
    return Path(unquote(urlsplit(str(connection.settings_dict["NAME"])).path))
