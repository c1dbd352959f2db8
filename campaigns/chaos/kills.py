"""Kill processes forty times while a hundred batches are processed, and reorganise the chain meanwhile."""

import random
import time
from collections import Counter
from collections.abc import Iterator

from campaigns.attacks.table import Seen
from campaigns.chaos.engines import DEEPEST_REORG, WORKERS, Target, target
from campaigns.chaos.load import Load, judge, kinds

_KILLS, _REORGS, _BATCHES = 40, 10, 100
_SECONDS_TO_END = 180


def run(engine: str, seed: int) -> Iterator[Seen]:
    chosen = random.Random(seed)
    reorg_after = set(chosen.sample(range(_KILLS), _REORGS))
    depths = [1, DEEPEST_REORG, *(chosen.randint(1, DEEPEST_REORG) for _ in range(_REORGS - 2))]
    with target(engine) as attacked:
        # Workers are killed most often, because they do work that could be done twice.
        names = [f"worker {number}" for number in range(1, WORKERS + 1)] * 3 + ["web"]
        names += ["database"] if attacked.postgres else []
        names += ["broker"] if attacked.redis else []
        load = Load(attacked, seed, batches=_BATCHES, pause=0.3)
        load.start()
        killed = Counter[str]()
        for number in range(_KILLS):
            time.sleep(chosen.uniform(0.1, 1.5))
            name = chosen.choice(names)
            _kill(attacked, name)
            killed[name] += 1
            if number in reorg_after:
                attacked.chain.rpc("anvil_reorg", depths.pop(), [])
        tried = f"kill -9 of {kinds(killed)}, {_REORGS} reorgs of depth 1 to {DEEPEST_REORG}"
        yield from judge(attacked, load, tried, _SECONDS_TO_END)


def _kill(attacked: Target, name: str) -> None:
    """Kill a process, and start it again immediately."""
    if server := {"database": attacked.postgres, "broker": attacked.redis}.get(name):
        server.kill()
        server.start()
        return
    attacked.service.kill(name)
    if name == "web":
        attacked.service.start_web()
    else:
        attacked.service.start_worker(name)
