"""How long lists are split."""

import pytest

from database.chunks import by_size


@pytest.mark.parametrize(
    ("sizes", "lists"),
    [
        ([], []),
        ([3, 3, 4], [[3, 3, 4]]),
        ([3, 3, 5], [[3, 3], [5]]),
        ([11, 1], [[11], [1]]),
        ([1, 11], [[1], [11]]),
        ([0, 0, 10, 0], [[0, 0, 10, 0]]),
    ],
)
def test_items_are_split_where_they_would_be_too_much_together(sizes, lists):
    assert list(by_size(sizes, int, 10)) == lists
