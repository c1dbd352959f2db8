"""Fixtures of development chains."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

from devnet.devchain import DevChain


def chain_fixture(
    prepare: Callable[[DevChain], object] = lambda _: None,
    *,
    scope: Literal["function", "module", "session"] = "module",
    **options: Any,
) -> Any:
    """Return a fixture that yields a prepared chain. `options` are those of `DevChain`."""

    @pytest.fixture(scope=scope)
    def prepared() -> Iterator[DevChain]:
        with DevChain(**options) as chain:
            prepare(chain)
            yield chain

    return prepared
