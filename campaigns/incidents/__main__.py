"""Run the incidents, one after another, under load; then the lies of one of two nodes: `make incidents`.

ONLY=text chooses some by parts of their names, with commas or spaces between them; SEED=1 chooses the load. Nothing
leaves this machine. For each incident the command prints after how many seconds it was told, by which code, and its
outcome; for a lie also what was paid; in the end, whether every batch, fact, cost and nonce is right. The exit code is
1 if a promise was broken.
"""

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

from campaigns.attacks.table import Seen, run_all
from campaigns.chaos.judge import judge
from campaigns.incidents.lies import LIES, lying
from campaigns.incidents.site import SIGNER, Site, site
from campaigns.incidents.table import INCIDENTS, Incident

# How long an incident that isn't told lasts: longer than it may, so that the table says when it was told.
_LONGEST_SECONDS = 120
# How long a batch may take that meets an incident which isn't told, because other processes absorb it.
_ABSORBED_SECONDS = 60
# Until the service is well again, and until each batch that was submitted meanwhile has ended.
_WELL_SECONDS, _ENDED_SECONDS = 90, 120
_SECONDS_TO_END = 240
_PLACES = ("first", "second")
# A lie lasts until its batches have ended, if that is within these seconds. Workers observe a chain each 15 s.
_LIE_BATCHES, _LIE_SECONDS, _LONGEST_LIE_SECONDS = 8, 30, 50
# Eight batches share more or fewer transactions.
_PAID_TIMES = 2
_ETHER = 10**18

_Run = Callable[[], Iterator[Seen]]


@dataclass(frozen=True)
class LieOutcome:
    lasted: float
    codes: Sequence[str]
    told: float
    """Seconds until the first code was told."""
    ended: int
    """Number of batches that ended meanwhile."""
    waits: Sequence[str]
    """Codes of the waits of the others at the end of the lie."""
    well: float
    """Seconds from the end of the lie until the service was well."""
    left: int
    """Number of batches that are open, though the node is honest again."""
    paid: int
    """In wei, for all batches."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make incidents", description=__doc__)
    parser.add_argument("--only", default="", help="parts of the incidents' names, with commas or spaces between them")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    names = [*INCIDENTS, *(f"lie-{name}-{place}" for place in _PLACES for name in LIES)]
    parts = options.only.replace(",", " ").split()
    for part in parts:
        if not any(part in name for name in names):
            parser.error(f"No incident's name contains {part!r}. The names: {', '.join(names)}.")
    return run_all(_runs([name for name in names if not parts or any(part in name for part in parts)], options.seed))


def _runs(names: Sequence[str], seed: int) -> Iterator[tuple[str, _Run]]:
    """Yield what to run, while its site is there."""
    if incidents := [name for name in names if name in INCIDENTS]:
        with site(seed) as ours:
            ours.load.start()
            for name in incidents:
                yield name, partial(_run, ours, INCIDENTS[name])
            yield "the end", partial(_end, ours)
    if lies := [name for name in names if name not in INCIDENTS]:
        with site(seed, nodes=len(_PLACES), fee="auto") as ours:
            honest = _outcome(ours, nullcontext())
            for name in lies:
                lie, _, place = name.removeprefix("lie-").rpartition("-")
                yield name, partial(_run_lie, ours, lie, _PLACES.index(place), honest)
            yield "the end of the lies", partial(_end, ours)


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
    kept = (not codes or bool(incident.not_codes)) and slowest <= _ABSORBED_SECONDS
    if incident.codes:
        promise = f"told by {' or '.join(incident.codes)} within {incident.told_seconds} s; then all goes on"
        seen, kept = f"told after {told:.0f} s", told <= incident.told_seconds
    if incident.not_codes:
        promise = f"{promise}; {' and '.join(incident.not_codes)} isn't told"
        kept = kept and set(incident.not_codes).isdisjoint(codes)
    yield Seen(
        f"{incident.description}, for {ended - began:.0f} s",
        promise,
        f"{seen}: {', '.join(codes) or 'no code'}; well {well:.0f} s after its end; of {len(meanwhile)} batches taken "
        f"meanwhile, beside {refused} refused, {left} are open, and the slowest took {slowest:.0f} s",
        kept=kept and well < float("inf") and not left,
    )


def _run_lie(ours: Site, name: str, place: int, honest: LieOutcome) -> Iterator[Seen]:
    lie, node = LIES[name], ours.nodes[place]
    outcome = _outcome(ours, lying(node, name))
    codes = lie.codes if place == 0 or lie.is_told_anywhere else ()
    call = f"told by {' or '.join(codes)}, and nothing else" if codes else "nobody is called"
    told = f"told after {outcome.told:.0f} s" if outcome.codes else "not told"
    waits = f" (they waited with {', '.join(outcome.waits)})" if outcome.waits else ""
    yield Seen(
        f"the {_PLACES[place]} of two nodes tells {lie.description}, for {outcome.lasted:.0f} s",
        f"{call}; paid at most {_PAID_TIMES} times as much as among honest nodes; all {_LIE_BATCHES} batches end "
        f"meanwhile; all is well within {_WELL_SECONDS} s, without a person",
        f"{told}: {', '.join(outcome.codes) or 'no code'}; paid {outcome.paid / _ETHER:.6f} ETH, instead of "
        f"{honest.paid / _ETHER:.6f}; {outcome.ended} of {_LIE_BATCHES} batches ended meanwhile{waits}, "
        f"{outcome.left} are open; well {outcome.well:.0f} s after its end; {node.lies_told} false answers",
        # Nobody may ask the second node.
        kept=(node.lies_told > 0 or place > 0)
        and set(outcome.codes) <= set(codes)
        and bool(outcome.codes) == bool(codes)
        and outcome.paid <= _PAID_TIMES * honest.paid
        and outcome.ended == _LIE_BATCHES
        and not outcome.left
        and outcome.well < float("inf"),
    )


def _outcome(ours: Site, lie: AbstractContextManager[None]) -> LieOutcome:
    """Submit batches during a lie, and wait until they have ended and all is well."""
    ours.wait_until_no_node_rests(_WELL_SECONDS)
    first, before = len(ours.load.answered), _balance(ours)
    submitting = threading.Thread(target=ours.load.submit, args=[_LIE_BATCHES], daemon=True)
    began = time.monotonic()
    with lie:
        submitting.start()
        time.sleep(_LIE_SECONDS)
        batches = ours.load.answered[first:]
        open_meanwhile, _ = ours.wait_until_ended(batches, _LONGEST_LIE_SECONDS - _LIE_SECONDS)
        codes, waits = ours.watcher.codes(began), ours.waits()
    over = time.monotonic()
    well = ours.watcher.well(over, _WELL_SECONDS)
    submitting.join(_ENDED_SECONDS)
    left, _ = ours.wait_until_ended(ours.load.answered[first:], _ENDED_SECONDS)
    return LieOutcome(
        lasted=over - began,
        codes=codes,
        told=ours.watcher.told(codes, began, _LONGEST_SECONDS) if codes else float("inf"),
        ended=len(batches) - open_meanwhile,
        waits=waits,
        well=well,
        left=left,
        paid=before - _balance(ours),
    )


def _balance(ours: Site) -> int:
    return int(ours.chain.rpc("eth_getBalance", SIGNER, "latest"), 16)


def _end(ours: Site) -> Iterator[Seen]:
    ours.load.end()
    yield from judge(ours, ours.load, "after all incidents", _SECONDS_TO_END, ours.expected)


if __name__ == "__main__":
    sys.exit(main())
