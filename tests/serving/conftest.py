from collections.abc import Iterator

import pytest

from tests.serving.process import WebServer, serving


@pytest.fixture(scope="session")
def web(tmp_path_factory) -> Iterator[WebServer]:
    """The service's pages and API."""
    with serving(tmp_path_factory.mktemp("web")) as server:
        yield server


@pytest.fixture(scope="session")
def short(tmp_path_factory) -> Iterator[WebServer]:
    """An application that may be slow or say much, behind short deadlines and few connections."""
    folder = tmp_path_factory.mktemp("short")
    with serving(
        folder, config="tests/serving/short.py", app="tests.serving.app:application", MAX_CONNECTIONS_PER_ADDRESS="8"
    ) as server:
        yield server
