"""`--database postgresql` starts a PostgreSQL for the tests' database.

pyproject.toml (`addopts`) imports this module before the settings, because the settings name the database.
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
    """Start a server for all processes of a test run. Each process has its own database on it."""
    global _server
    if early_config.known_args_namespace.database == "postgresql":
        # A test may start several processes, each with a pool of connections.
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
    """Remove `DATABASE_URL`. A test passes a process the test's own database, or another one, explicitly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DATABASE_URL", raising=False)
        yield


def same_database() -> dict[str, str]:
    """Return environment variables that make a process use the test's database."""
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
