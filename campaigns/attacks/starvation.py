"""A user submits as much as is allowed, while another user's single query must still be proven."""

import random
import statistics
import time
from collections.abc import Iterator

from campaigns.attacks.table import Seen
from campaigns.attacks.target import Target, target
from campaigns.bodies import balances
from demo.client import status, submit

_BATCHES, _BLOCKS, _APART = 24, 2000, 20
# Allowed delay in seconds compared with an idle service, which mostly waits for the next block.
_SECONDS_LATER = 5
# Number of probes, and seconds between probes, so that they meet the batches at different stages.
_PROBES, _PAUSE = 6, 3
_ENOUGH = 60  # seconds after which a query counts as starved


def run(seed: int) -> Iterator[Seen]:
    chance = random.Random(seed)
    with target(MAX_QUERIES_PER_MINUTE="1000000") as attacked:
        # Mining more blocks would take anvil minutes, so the batches overlap in blocks and differ in accounts.
        attacked.chain.mine(_BLOCKS + _BATCHES * _APART)
        heavy, newcomer = attacked.key(0), attacked.key(1)
        alone = statistics.median(_seconds_to_done(attacked, newcomer, chance) for _ in range(3))
        began = time.monotonic()
        heavies = [_submit_heavy(attacked, heavy, place, chance) for place in range(_BATCHES)]
        took = time.monotonic() - began
        beside = []
        for _ in range(_PROBES):
            beside.append(_seconds_to_done(attacked, newcomer, chance))
            if beside[-1] > alone + _SECONDS_LATER:
                break
            time.sleep(_PAUSE)
        shared = _seconds_to_done(attacked, newcomer, chance, block=chance.randrange(10, _BLOCKS))
        open_ones = sum(status(attacked.url, heavy, batch) == "IN_PROGRESS" for batch in heavies)
        worst = max(*beside, shared)
        yield Seen(
            f"{_BATCHES} batches of {_BLOCKS} blocks of one key, submitted within {took:.0f} s; then one query after "
            "another of another user, the last at a block of the batches",
            f"each is DONE at most {_SECONDS_LATER} s later than alone",
            f"alone {alone:.1f} s; beside it {', '.join(f'{each:.1f}' for each in beside)} and {shared:.1f} s, at most "
            f"{worst / alone:.1f} times as long; {open_ones} of the batches were still open",
            kept=worst <= alone + _SECONDS_LATER and open_ones > 0,
        )


def _submit_heavy(attacked: Target, key: str, place: int, chance: random.Random) -> str:
    first = 1 + place * _APART
    return submit(attacked.url, key, balances(range(first, first + _BLOCKS), [f"0x{chance.randrange(2**160):040x}"]))


def _seconds_to_done(attacked: Target, key: str, chance: random.Random, block: int | None = None) -> float:
    number = attacked.chain.head() if block is None else block
    return attacked.seconds_to_done(key, balances([number], [f"0x{chance.randrange(2**160):040x}"]), _ENOUGH)
