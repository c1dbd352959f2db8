"""Parts of a table of tests that only `make test-long` runs. A test that is long as a whole has the mark
`long` itself.
"""

from collections.abc import Collection, Mapping
from typing import Any

import pytest


def rows(table: Mapping[str, Any], *, at_once: Collection[str]) -> list[Any]:
    """Return the table's rows as named parameters. Rows whose names are not in `at_once` are marked long."""
    assert table.keys() >= set(at_once)
    return [
        pytest.param(row, id=name, marks=[] if name in at_once else pytest.mark.long) for name, row in table.items()
    ]
