"""Forty times `kill -9` among three workers during a hundred batches, while the chain is reorganised."""

import random
import time
from collections import Counter
from collections.abc import Iterator

from campaigns.attacks.table import Seen
from campaigns.chaos.engines import DEEPEST_REORG, WORKERS, target
from campaigns.chaos.load import Load, judge

_KILLS, _REORGS, _BATCHES = 40, 10, 100
_SECONDS_TO_END = 180


def run(engine: str, seed: int) -> Iterator[Seen]:
    chosen = random.Random(seed)
    reorg_after = set(chosen.sample(range(_KILLS), _REORGS))
    depths = [1, DEEPEST_REORG, *(chosen.randint(1, DEEPEST_REORG) for _ in range(_REORGS - 2))]
    with target(engine) as attacked:
        load = Load(attacked, seed, batches=_BATCHES, pause=0.3)
        load.start()
        killed = Counter[str]()
        for number in range(_KILLS):
            time.sleep(chosen.uniform(0.1, 1.5))
            name = f"worker {chosen.randint(1, WORKERS)}"
            attacked.service.kill(name)
            attacked.service.start_worker(name)
            killed[name] += 1
            if number in reorg_after:
                attacked.chain.rpc("anvil_reorg", depths.pop(), [])
        tried = f"{sum(killed.values())} times kill -9 among {WORKERS} workers, {_REORGS} reorgs of depth 1 to 20"
        yield from judge(attacked, load, tried, _SECONDS_TO_END)
