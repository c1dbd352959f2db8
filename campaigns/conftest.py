from collections.abc import Callable

import pytest

pytest_plugins = ["tests.conftest"]


@pytest.fixture
def report(capsys) -> Callable[[str, object], None]:
    """Prints a figure with what it is of."""

    def report(what: str, figure: object) -> None:
        with capsys.disabled():
            print(f"\n  {what:<70} {figure}", end="")

    return report
