"""`--database postgresql` puts the tests' database into a PostgreSQL that is started for them.

This module is imported before the settings (`addopts` in pyproject.toml), because the settings name the database.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from devnet.servers import Postgres

_server: Postgres | None = None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--database", choices=["sqlite", "postgresql"], default="sqlite", help="the engine of the tests' database"
    )


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Iterator[None]:
    """Start a server that the processes of a run share. Each process has its own database in it."""
    global _server
    if early_config.known_args_namespace.database == "postgresql":
        # A test may start several processes, each with a connection pool.
        _server = Postgres(settings=["max_connections=400"]).__enter__()
        os.environ["DATABASE_URL"] = _server.url("service")
    return (yield)


def pytest_unconfigure() -> None:
    if _server is not None:
        _server.remove()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "sqlite_only(reason): what is tested is SQLite's")
    config.addinivalue_line("markers", "postgresql_only(reason): what is tested is PostgreSQL's")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    skipped = "sqlite_only" if config.getoption("database") == "postgresql" else "postgresql_only"
    for item in items:
        for marker in item.iter_markers(skipped):
            item.add_marker(pytest.mark.skip(reason=marker.kwargs["reason"]))


@pytest.fixture(scope="session", autouse=True)
def no_database_url() -> Iterator[None]:
    """Remove `DATABASE_URL`. Processes of a test get the test's database, or one of their own, explicitly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DATABASE_URL", raising=False)
        yield


def same_database() -> dict[str, str]:
    """Return environment variables that give a process the test's own database."""
    if connection.vendor == "sqlite":
        return {"SQLITE_FILE": str(connection.settings_dict["NAME"])}
    return {"DATABASE_URL": _url(connection.settings_dict["NAME"])}


def _url(database: object) -> str:
    settings: dict[str, Any] = connection.settings_dict
    return f"postgresql://{settings['USER']}@{settings['HOST']}:{settings['PORT']}/{database}"


def all_that_is_stored() -> str:
    with connection.cursor() as cursor:
        rows: list[object] = []
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            rows += cursor.fetchall()
    return repr(rows)
