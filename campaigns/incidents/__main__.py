"""Run every incident, one after another, under load: `make incidents [ONLY=text] [SEED=1]`.

Nothing leaves this machine. For each incident the command prints after how many seconds it was told, by which code, and
its outcome; in the end, whether every batch, fact, cost and nonce is right. The exit code is 1 if a promise was broken.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from functools import partial

from campaigns.attacks.table import Seen, run_all
from campaigns.chaos.judge import judge
from campaigns.incidents.site import Site, site
from campaigns.incidents.table import INCIDENTS, Incident

# How long an incident that isn't told lasts: longer than it may, so that the table says when it was told.
_LONGEST_SECONDS = 120
# How long a batch may take that meets an incident which isn't told, because other processes absorb it.
_ABSORBED_SECONDS = 60
# Until the service is well again, and until each batch that was submitted meanwhile has ended.
_WELL_SECONDS, _ENDED_SECONDS = 90, 120
_SECONDS_TO_END = 240


def main() -> int:
    parser = argparse.ArgumentParser(prog="make incidents", description=__doc__)
    parser.add_argument("--only", default="", help="a part of the incidents' names")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with site(options.seed) as ours:
        runs = [(name, partial(_run, ours, incident)) for name, incident in INCIDENTS.items() if options.only in name]
        return run_all([*runs, ("the end", partial(_end, ours))])


def _run(ours: Site, incident: Incident) -> Iterator[Seen]:
    first, refused_before = len(ours.load.answered), ours.load.refused.total()
    told = 0.0
    with incident.happens(ours):
        began = time.monotonic()
        if incident.codes:
            told = ours.watcher.told(incident.codes, began, _LONGEST_SECONDS)
        time.sleep(max(0.0, began + incident.seconds - time.monotonic()))
        codes = ours.watcher.codes(began)
    ended = time.monotonic()
    meanwhile, refused = ours.load.answered[first:], ours.load.refused.total() - refused_before
    well = ours.watcher.well(ended, _WELL_SECONDS)
    left, slowest = ours.wait_until_ended(meanwhile, _ENDED_SECONDS)
    promise, seen = f"absorbed: no batch takes longer than {_ABSORBED_SECONDS} s", "not told"
    kept = not codes and slowest <= _ABSORBED_SECONDS
    if incident.codes:
        promise = f"told by {' or '.join(incident.codes)} within {incident.told_seconds} s; then all goes on"
        seen, kept = f"told after {told:.0f} s", told <= incident.told_seconds
    yield Seen(
        f"{incident.description}, for {ended - began:.0f} s",
        promise,
        f"{seen}: {', '.join(codes) or 'no code'}; well {well:.0f} s after its end; of {len(meanwhile)} batches taken "
        f"meanwhile, beside {refused} refused, {left} are open, and the slowest took {slowest:.0f} s",
        kept=kept and well < float("inf") and not left,
    )


def _end(ours: Site) -> Iterator[Seen]:
    ours.load.end()
    yield from judge(ours, ours.load, "after all incidents", _SECONDS_TO_END, ours.expected)


if __name__ == "__main__":
    sys.exit(main())
