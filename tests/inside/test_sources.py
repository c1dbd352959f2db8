"""How games are searched through."""

from devnet.dispute_games import output_of
from devnet.foreign_contracts import ask
from proving.connections import open_connection
from proving.sources.op_stack_games import _Factory
from tests.proving.sources import HERE, THERE
from tests.proving.test_sources import games, there  # noqa: F401  # fixtures


def test_the_first_game_after_a_time_is_found_among_many(chain, games, there):  # noqa: F811
    made = [games.propose(output_of(there, 1 + place % 28), 1 + place) for place in range(40)]
    times = [int.from_bytes(ask(chain, game, "createdAt()")) for game in made]
    assert times == sorted(set(times))
    factory = _Factory.of(open_connection(HERE, THERE))
    for place in (0, 1, 15, 16, 17, 38):
        first, *_ = next(iter(factory.games_since(times[place])))
        assert (first.address, first.made_at, first.number) == (made[place + 1], times[place + 1], place + 2)
    assert [len(page) for page in factory.games_since(0)] == [32, 8]
    assert list(factory.games_since(times[-1])) == []
