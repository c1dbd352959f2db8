from collections.abc import Iterator

import pytest

from tests.serving.process import WebServer, serving


@pytest.fixture(scope="session")
def web(tmp_path_factory) -> Iterator[WebServer]:
    """Yield a server of the service's pages and API."""
    with serving(tmp_path_factory.mktemp("web")) as server:
        yield server


@pytest.fixture(scope="session")
def app(tmp_path_factory) -> Iterator[WebServer]:
    """Yield a server of an application that can be slow or send much."""
    with serving(tmp_path_factory.mktemp("app"), app="tests.serving.app:application") as server:
        yield server
