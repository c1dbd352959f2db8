"""The order in which queues and users come, by itself. tests/proving/test_turns.py has it with what they wait for."""

import itertools
from collections.abc import Iterator

from queries import turns
from queries.turns import Turns, round_robin


def test_queues_take_turns_and_none_is_asked_before_its_turn():
    def two(name: str) -> Iterator[str]:
        for number in (1, 2):
            asked.append(name)
            yield f"{name}{number}"

    asked: list[str] = []
    order = round_robin([two("a"), iter(()), two("b")])
    assert list(itertools.islice(order, 2)) == ["a1", "b1"]
    assert asked == ["a", "b"]
    assert list(order) == ["a2", "b2"]


def test_who_had_no_turn_yet_comes_first_and_the_others_in_their_order(monkeypatch):
    had = Turns()
    had.note("a")
    had.note("b")
    assert sorted("bac", key=had.last) == ["c", "a", "b"]
    had.note("a")
    assert sorted("bac", key=had.last) == ["c", "b", "a"]
    monkeypatch.setattr(turns, "_REMEMBERED", 2)
    for name in "defg":
        had.note(name)
    assert len(had._last) <= 3
