"""The database, the broker or the node is away for a minute, and a node becomes slower and slower."""

import time
from collections.abc import Iterator

import redis as redis_client

from campaigns.attacks.table import Seen
from campaigns.chaos.engines import ENGINES, a_chain, target
from campaigns.chaos.load import Load, judge
from demo.installation import CHAIN_ID
from tests.chains.hostile_node import Exchange, hostile_node
from tests.chains.lying_node import ask

_AWAY_SECONDS, _WARM_SECONDS = 60, 5
_SECONDS_TO_END = 180
_BATCHES = 60


def database(engine: str, seed: int) -> Iterator[Seen]:
    """Killed as by a power cut, while others use it, and away for a minute."""
    has_postgres, _ = ENGINES[engine]
    if not has_postgres:
        return
    with target(engine) as attacked:
        assert attacked.postgres is not None
        load = Load(attacked, seed, batches=_BATCHES, pause=0.2)
        load.start()
        time.sleep(_WARM_SECONDS)
        attacked.postgres.kill()
        time.sleep(_AWAY_SECONDS)
        attacked.postgres.start()
        yield from judge(attacked, load, f"the database is killed and away for {_AWAY_SECONDS} s", _SECONDS_TO_END)


def broker(engine: str, seed: int) -> Iterator[Seen]:
    """Away for a minute, and then emptied again and again."""
    _, has_celery = ENGINES[engine]
    if not has_celery:
        return
    with target(engine) as attacked:
        assert attacked.redis is not None
        load = Load(attacked, seed, batches=_BATCHES, pause=0.5)
        load.start()
        time.sleep(_WARM_SECONDS)
        attacked.redis.kill()
        time.sleep(_AWAY_SECONDS)
        attacked.redis.start()
        with redis_client.Redis.from_url(attacked.redis.url()) as client:
            for _ in range(20):
                client.flushall()
                time.sleep(0.2)
        tried = f"the broker is killed and away for {_AWAY_SECONDS} s, and emptied 20 times"
        yield from judge(attacked, load, tried, _SECONDS_TO_END)


def node(engine: str, seed: int) -> Iterator[Seen]:
    """Each answer takes twice as long as the last, until it takes longer than anybody waits."""
    slow = _Slow()
    with a_chain() as chain:
        slow.url = chain.url
        with hostile_node(slow, chain_id=CHAIN_ID) as url, target(engine, node=url, chain=chain) as attacked:
            load = Load(attacked, seed, batches=_BATCHES // 2, pause=0.2)
            load.start()
            time.sleep(_WARM_SECONDS)
            slow.seconds = 0.05
            time.sleep(_AWAY_SECONDS)
            slowest, slow.seconds = slow.seconds, 0.0
            tried = f"the node answers each request twice as slowly as the last, up to {slowest:.0f} s"
            yield from judge(attacked, load, tried, _SECONDS_TO_END)


class _Slow:
    """A node that answers as another one does, but late. 0: at once."""

    url = ""
    seconds = 0.0

    def __call__(self, exchange: Exchange) -> None:
        if self.seconds:
            time.sleep(self.seconds)
            self.seconds = min(40.0, self.seconds * 2)
        exchange.answer_json(ask(self.url, exchange.body))
