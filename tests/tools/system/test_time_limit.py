"""The limit of a test's time, and marks that name rows of a table."""

import pytest

from tests import time_limit


@pytest.mark.parametrize(("layer", "fails"), [("database", True), ("story", False), ("long", False)])
def test_a_test_over_the_limit_fails_unless_it_is_a_story_or_long(request, monkeypatch, layer, fails):
    run = time_limit.pytest_runtest_call(request.node)
    with monkeypatch.context() as patch:
        patch.setattr(time_limit, "_SHORT_SECONDS", 0)
        patch.setattr(time_limit, "_LIMIT_SECONDS", 0)
        patch.setattr(time_limit, "_layer", lambda _: layer)
        next(run)
        with pytest.raises(pytest.fail.Exception if fails else StopIteration):
            next(run)


@pytest.mark.parametrize(("folder", "is_misplaced"), [("no_database", True), ("database", False), ("proving", True)])
def test_a_test_is_in_a_folder_that_tells_what_it_uses(request, monkeypatch, tmp_path, folder, is_misplaced):
    monkeypatch.setattr(request.node, "path", tmp_path / folder / "test_rows.py")
    monkeypatch.setattr(request.node, "fixturenames", ["db"])
    assert time_limit._is_misplaced(request.node) == is_misplaced


@pytest.mark.long("a long row")
@pytest.mark.parametrize("row", ["a long row", "another row"], ids=str)
def test_a_mark_is_that_of_the_rows_that_it_names(request, row):
    assert (request.node.get_closest_marker("long") is not None) == (row == "a long row")
