"""Run all campaigns in two processes: `make fuzz`, STEPS=10000000 TRANSACTIONS=1000000 SEED=1 and so on, JOBS=2.

The exit code is 1 if something diverges. The output says how to repeat it: `make fuzz AGAIN=steps/4294967296/50000`.
"""

import re
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from campaigns.fuzzing import (
    boundaries,
    branches,
    headers,
    jumps,
    receipts,
    sequences,
    steps,
    transactions,
    undefined,
    walks,
)
from campaigns.fuzzing.tally import Divergence, Tally
from chains.contract_artifacts import code_digest
from devnet.devchain import DevChain


@dataclass(frozen=True)
class Campaign:
    name: str
    run: Callable[[DevChain, int, int], Tally]
    count: int
    """Number of trials, unless the caller names another."""
    share: int
    """Number of trials in one job, which takes about half a minute."""


CAMPAIGNS = (
    Campaign("steps", steps.run, 10_000_000, 50_000),
    Campaign("boundaries", boundaries.run, 1_000_000, 50_000),
    Campaign("transactions", transactions.run, 1_000_000, 10_000),
    Campaign("sequences", sequences.run, 1_000_000, 10_000),
    Campaign("receipts", receipts.run, 1_000_000, 2_000),
    Campaign("headers", headers.run, 200_000, 20_000),
    Campaign("branches", branches.run, 100_000, 10_000),
    Campaign("branches-before-gloas", branches.run_before_gloas, 20_000, 10_000),
    Campaign("jumps", jumps.run, 100_000, 10_000),
    Campaign("walks", walks.run, 1_000_000, 10_000),
    Campaign("undefined-steps", undefined.run_steps, 1_000_000, 50_000),
    Campaign("undefined-transactions", undefined.run_transactions, 200_000, 10_000),
)
BY_NAME = {campaign.name: campaign for campaign in CAMPAIGNS}

_PROGRESS_SECONDS = 60


@dataclass(frozen=True)
class Job:
    campaign: str
    seed: int
    count: int

    def __str__(self) -> str:
        return f"{self.campaign}/{self.seed}/{self.count}"


class Result(NamedTuple):
    job: Job
    tally: Tally
    divergence: str
    seconds: float


@dataclass
class Totals:
    """The totals of one campaign."""

    tally: Tally = field(default_factory=Tally)
    seconds: float = 0
    diverged: int = 0

    def add(self, result: Result) -> None:
        self.tally += result.tally
        self.seconds += result.seconds
        if result.divergence:
            self.diverged += 1
            print(result.divergence, flush=True)


def plan(counts: Mapping[str, int], seed: int) -> list[Job]:
    """Return the jobs in an order in which all campaigns advance together."""
    jobs: list[tuple[float, Job]] = []
    for name, count in counts.items():
        share = BY_NAME[name].share
        for number, begin in enumerate(range(0, count, share)):
            # The seeds of jobs are unique, even across runs with different seeds.
            jobs.append((begin / count, Job(name, seed << 32 | number, min(share, count - begin))))
    return [job for _, job in sorted(jobs, key=itemgetter(0))]


def work(job: Job) -> Result:
    began = time.monotonic()
    tally, divergence = Tally(), ""
    with DevChain(extra_args=("--gas-limit", str(10**12))) as chain:
        try:
            tally = BY_NAME[job.campaign].run(chain, job.seed, job.count)
        except Divergence as error:
            divergence = f"{error}\nAgain: make fuzz AGAIN={job}"
        except Exception:  # noqa: BLE001 (a defect of one campaign must not stop the others)
            divergence = f"{traceback.format_exc()}The campaign itself failed. Again: make fuzz AGAIN={job}"
    return Result(job, tally, divergence, time.monotonic() - began)


def work_on(jobs: Sequence[Job], processes: int) -> dict[str, Totals]:
    """Return the totals by campaign. Print each divergence immediately, and progress every minute."""
    totals = {job.campaign: Totals() for job in jobs}
    began = printed_at = time.monotonic()
    with ProcessPoolExecutor(processes) as pool:
        waiting = {pool.submit(work, job) for job in jobs}
        while waiting:
            ended, waiting = wait(waiting, timeout=5, return_when=FIRST_COMPLETED)
            for future in ended:
                totals[future.result().job.campaign].add(future.result())
            if time.monotonic() - printed_at >= _PROGRESS_SECONDS:
                printed_at = time.monotonic()
                print(progress(totals, sum(job.count for job in jobs), printed_at - began), flush=True)
    return totals


def progress(totals: Mapping[str, Totals], planned: int, seconds: float) -> str:
    done = sum(each.tally.done for each in totals.values())
    diverged = sum(each.diverged for each in totals.values())
    return f"{seconds / 60:.0f} min: {done:,} of {planned:,}, {done / seconds:,.0f} a second, {diverged} divergences"


def report(totals: Mapping[str, Totals]) -> str:
    lines: list[str] = []
    for name, each in totals.items():
        tally = each.tally
        rate = tally.done / each.seconds if each.seconds else 0
        lines.append(f"{name}: {tally.done:,}, {rate:,.0f} a second in each process, {each.diverged} divergences")
        accepted = ", ".join(f"{form}: {count:,}" for form, count in sorted(tally.accepted.items()))
        lines.append(textwrap.fill(f"accepted: {accepted}", 120, initial_indent="  ", subsequent_indent="    "))
        lines.append(f"  refused: {tally.refused.total():,}")
        lines += [f"    {count:>10,} {sentence}" for sentence, count in tally.refused.most_common()]
    return "\n".join(lines)


USAGE = f"These can be set: {', '.join(BY_NAME).upper()}, SEED, JOBS to numbers; AGAIN as in AGAIN=steps/5/1000."


def read_arguments(words: Sequence[str]) -> tuple[list[Job], int]:
    """Return the jobs and the number of processes. Raise ValueError if an argument is invalid."""
    numbers = {"seed": 1, "jobs": 2} | {campaign.name: campaign.count for campaign in CAMPAIGNS}
    again: list[Job] = []
    for word in words:
        name, _, value = word.lower().partition("=")
        if name in numbers and value.isdecimal() and word.lower() != "jobs=0":
            numbers[name] = int(value)
        elif (match := re.fullmatch(r"again=([\w-]+)/(\d+)/(\d+)", word.lower())) and match[1] in BY_NAME:
            again.append(Job(match[1], int(match[2]), int(match[3])))
        else:
            raise ValueError(f"{word} makes no sense. {USAGE}")
    jobs = again or plan({name: numbers[name] for name in BY_NAME}, numbers["seed"])
    return jobs, numbers["jobs"]


def main() -> int:
    """Run the command. Return 1 if something diverged or was not tried, and 2 if an argument is invalid."""
    try:
        jobs, processes = read_arguments(sys.argv[1:])
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    totals = work_on(jobs, processes)
    print(report(totals))
    planned, done = sum(job.count for job in jobs), sum(each.tally.done for each in totals.values())
    if done < planned:
        print(f"Not all: {done:,} of {planned:,}.")
    print(f"The code's digest: {code_digest()}")
    return int(done < planned or any(each.diverged for each in totals.values()))


if __name__ == "__main__":
    sys.exit(main())
