"""The clocks of two workers are a minute apart."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from campaigns.attacks.table import Seen
from campaigns.chaos.engines import target
from campaigns.chaos.load import Load, judge
from devnet.devchain import PROJECT

_APART_SECONDS = 60
_BATCHES = 40
_SECONDS_TO_END = 120


def run(engine: str, seed: int) -> Iterator[Seen]:
    site = f"{PROJECT / 'campaigns' / 'attacks' / 'skewed_site'}:{PROJECT}"
    with tempfile.TemporaryDirectory() as folder, target(engine) as attacked:
        for name, seconds in (("worker 2", _APART_SECONDS // 2), ("worker 3", -_APART_SECONDS // 2)):
            clock = Path(folder) / name
            clock.write_text(str(seconds))
            attacked.service.kill(name)
            attacked.service.start_worker_with(name, PYTHONPATH=site, CLOCK_FILE=str(clock))
        load = Load(attacked, seed, batches=_BATCHES, pause=0.2)
        load.start()
        tried = f"the clocks of two of the workers are {_APART_SECONDS} s apart"
        yield from judge(attacked, load, tried, _SECONDS_TO_END)
