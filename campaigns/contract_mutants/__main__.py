"""Test the contracts' tests: `make mutants`, ONLY=... SHARD=1/4 JOBS=2 ONLY_SURVIVORS=1.

Each check in each contract is removed or weakened, and each statement is left out, one at a time. The tests must then
fail, or equivalents.toml must explain why the change makes no difference.

Mutants of a file are compiled together and tried by a replay of the tests' calls, then by the tests (screening.py).
Mutants that this can't choose are compiled and tried one at a time (compiling.py, trial.py).
"""

import argparse
import os
import re
import signal
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from campaigns.contract_mutants.compiling import Code, Compiler, Store, digest, name_of
from campaigns.contract_mutants.generate import generate, syntax_trees
from campaigns.contract_mutants.named import named
from campaigns.contract_mutants.report import DOES_NOT_COMPILE, NO_CONTRACT, SAME_CODE, judge, read_list
from campaigns.contract_mutants.screening import screen
from campaigns.contract_mutants.trial import SURVIVED, Command, Project, TrialError, Verdict, judge_all, pytest
from chains.contract_artifacts import code_digest
from contracts.build import LIBRARY, ROOT_DIR, SETTINGS, BuildError, build, read_sources

LIST = Path(__file__).parent / "equivalents.toml"
FOUND = ROOT_DIR / ".mutants"
ROLLUPS = "tests/contracts/no_database/test_rollup_block_hash_sources.py"


def campaigns(*names: str, harness: bool = False, views: bool = False) -> Command:
    """Return a command that runs campaigns on the registry, or on the harness for single operations."""
    return Command("campaigns", ("-m", "campaigns.contract_mutants.short_campaigns", *names), harness, views)


# Commands that may catch a mutant of each contract. Those that catch most mutants per second come first.
COMMANDS: dict[str, tuple[Command, ...]] = {
    "ArbitrumBlockHashSource": (pytest(ROLLUPS, "tests/contracts/chain/test_arbitrum_block_hash_source.py"),),
    "ArbitrumBufferBlockHashSource": (pytest("tests/contracts/no_database/test_arbitrum_buffer_block_hash_source.py"),),
    "ArbitrumSlotBlockHashSource": (pytest(ROLLUPS, "tests/contracts/chain/test_arbitrum_block_hash_source.py"),),
    "AttestedBlockHashSource": (pytest("tests/contracts/chain/test_attested_block_hash_source.py"),),
    "BeaconBlockHashSource": (pytest("tests/contracts/no_database/test_beacon_block_hash_source.py"),),
    "BeaconHistory": (
        campaigns("branches-before-gloas"),
        pytest("tests/contracts/chain/test_beacon_history.py", "tests/contracts/chain/test_beacon_attacks.py"),
    ),
    "GloasBeaconBlockHashSource": (pytest("tests/contracts/no_database/test_beacon_block_hash_source.py"),),
    "GloasBeaconHistory": (
        campaigns("branches"),
        pytest("tests/contracts/chain/test_beacon_history.py", "tests/contracts/chain/test_beacon_attacks.py"),
    ),
    "package/CurveBlockHashOracle": (pytest("tests/contracts/chain/test_adapters.py"),),
    "package/FixedStateProverPointer": (pytest("tests/contracts/chain/test_state_prover.py", "-k", "pointer"),),
    "package/RegistryStateProver": (
        pytest("tests/contracts/chain/test_state_prover.py", "-k", "not compile and not storage_of_a_registry"),
    ),
    "package/UnruggableHooks": (pytest("tests/contracts/chain/test_adapters.py", views=True),),
    "FactsReader": (
        pytest(
            *(
                f"tests/contracts/chain/test_{each}.py"
                for each in ("trie_walk", "receipt_walk", "receipt_types", "withdrawal_walk")
            ),
            views=True,
        ),
        pytest("tests/contracts/chain/test_facts_reader.py"),
        pytest("tests/contracts/no_database/test_gas_budgets.py", "-k", "shown", views=True),
        campaigns("walks", views=True),
    ),
    "FactsRegistry": (
        campaigns("transactions", "headers", "jumps", "receipts"),
        campaigns("boundaries", "steps", harness=True),
        pytest(
            *(f"tests/contracts/chain/test_{each}.py" for each in ("one_nibble", "any_memory", "stack_zone")),
            harness=True,
        ),
        pytest("tests/contracts/chain/test_facts_registry.py"),
        pytest("tests/contracts/chain/test_jumps.py"),
        pytest("tests/contracts/chain/test_receipt_types.py"),
        pytest("tests/contracts/chain/test_transactions.py"),
        pytest("tests/contracts/chain/test_other_layouts.py"),
        campaigns("sequences"),
        pytest("tests/contracts/chain/test_packed_proofs.py"),
    ),
    "test/PackageUser": (
        pytest(
            *(
                f"tests/contracts/chain/test_{each}.py"
                for each in ("headers", "trie_walk", "slot_values", "receipt_walk", "receipt_types")
            ),
            views=True,
        ),
        # These answers depend on the time of the block, and on what the source has vouched for.
        pytest(
            *("tests/contracts/chain/test_package.py", "tests/contracts/chain/test_headers.py"),
            *("-k", "literal or required"),
        ),
    ),
    "test/ProvenFactsUser": (pytest("tests/contracts/chain/test_proven_facts.py", views=True),),
    "test/RlpReader": (pytest("tests/contracts/chain/test_calldata_rlp.py", views=True),),
    "NativeBlockHashSource": (pytest("tests/contracts/no_database/test_native_block_hash_source.py"),),
    "OpStackGamesBlockHashSource": (pytest(ROLLUPS, "tests/contracts/chain/test_op_stack_games_block_hash_source.py"),),
    "OpStackBlockHashSource": (pytest("tests/contracts/no_database/test_op_stack_block_hash_source.py"),),
    "Multicall": (pytest("tests/contracts/chain/test_multicall.py"),),
}


def main() -> int:
    """Run the command. Return 1 if a mutant survives without an argument, or if an argument has no mutant."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.contract_mutants", description="Test the tests.")
    parser.add_argument(
        "--only", default="", help="mutants in whose description this is: a file, a function, a snippet"
    )
    parser.add_argument("--shard", default="1/1", type=_shard, help="2/4 tries the second quarter")
    parser.add_argument("--jobs", default=os.cpu_count() or 1, type=int, help="how many at once")
    parser.add_argument(
        "--only-survivors",
        action="store_true",
        help="only those that were not caught before and aren't listed: for when nothing but tests was added",
    )
    parser.add_argument("--list", action="store_true", help="only list them")
    arguments = parser.parse_args()
    # SIGTERM acts like Ctrl-C, so that running commands are stopped and clean up.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run(
            arguments.only,
            arguments.shard,
            arguments.jobs,
            only_survivors=arguments.only_survivors,
            only_list=arguments.list,
        )
    except (BuildError, TrialError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("Stopped. What was found is kept, and it goes on from there.\n")
        return 130


def run(only: str, shard: tuple[int, int], jobs: int, *, only_survivors: bool, only_list: bool) -> int:
    """Try the mutants. Raise BuildError, TrialError, or ValueError if the list of equivalents is invalid."""
    listed = read_list(LIST)
    sources = read_sources("src", "test")
    trees = syntax_trees(sources)
    generated = [mutant for mutant in generate(sources, trees) if mutant.source.startswith(("src/", LIBRARY))]
    known = [*generated, *named(sources)]
    selected = [mutant for mutant in known if only in str(mutant)][shard[0] - 1 :: shard[1]]
    if only_list or not selected:
        print("\n".join(map(str, selected)) or "There is no such mutant.")
        return 0 if selected else 1

    project = Project(ROOT_DIR, _artifacts(sources), COMMANDS)
    compiler = Compiler(sources, trees, Store(FOUND / "code"))
    screened = screen(
        project,
        selected,
        sources,
        trees,
        compiler=compiler,
        store=Store(FOUND / "chosen"),
        jobs=jobs,
        listed=listed,
        is_settled=lambda mutant, verdict: only_survivors and (verdict.outcome != SURVIVED or mutant.key in listed),
        tell=partial(print, flush=True),
    )
    left = [mutant for mutant in selected if mutant not in screened]
    survivors = [mutant for mutant, verdict in screened.items() if verdict.outcome == SURVIVED]
    # The code of a survivor without an argument tells whether it is the original's, or that of one with an argument.
    if any(mutant.key not in listed for mutant in survivors):
        left += survivors
    done = 0

    def compiled(more: int) -> None:
        nonlocal done
        done += more
        print(f"Compiled {done} of {len(left)} ...", flush=True)

    codes = compiler.compile_all(left, jobs=jobs, tell=compiled)
    changed = {mutant: changes for mutant, code in codes.items() if code and (changes := project.changed(code))}
    names = {mutant: name_of(code) for mutant, code in changed.items()}
    untried = {mutant: code for mutant, code in changed.items() if mutant not in screened}
    different = {names[mutant]: mutant for mutant in reversed(untried)}
    tried = 0

    def print_verdict(code: Code, verdict: Verdict) -> None:
        nonlocal tried
        tried += 1
        shown = f"{tried}/{len(different)} {verdict.outcome}: {different[name_of(code)]}  {verdict.by}"
        print(shown.rstrip(), flush=True)

    print(f"Trying the tests on {len(different)} that are different ...", flush=True)
    argued = {name for mutant, name in names.items() if mutant.key in listed}

    def is_settled(name: str, verdict: Verdict) -> bool:
        return only_survivors and (verdict.outcome != SURVIVED or name in argued)

    store = Store(FOUND / "verdicts")
    verdicts = judge_all(
        project, untried, compiler=compiler, store=store, jobs=jobs, is_settled=is_settled, tell=print_verdict
    )
    outcomes = {
        mutant: screened[mutant]
        if mutant in screened and (mutant in names or mutant not in codes)
        else verdicts[names[mutant]]
        if mutant in names
        else Verdict(DOES_NOT_COMPILE if (code := codes[mutant]) is None else SAME_CODE if code else NO_CONTRACT, "")
        for mutant in selected
    }
    report = judge(outcomes, names, listed, known)
    print(f"\n{report.table()}\n")
    for mutant in report.survivors():
        print(f"{SURVIVED}: {mutant}")
    for sentence in report.stale:
        print(sentence)
    print(f"The code's digest: {code_digest()}")
    return 0 if report.is_fine() else 1


def _artifacts(sources: Mapping[str, str]) -> dict[Path, str]:
    """Return what `build` does, which takes a minute, from an earlier run with the same sources."""
    lock = (ROOT_DIR / "package-lock.json").read_text()
    store, name = Store(FOUND / "artifacts"), digest([SETTINGS, lock, sources])
    if (kept := store.get(name)) is None:
        kept = {path.as_posix(): text for path, text in build().items()}
        store.put(name, kept)
    return {Path(path): text for path, text in kept.items()}


def _shard(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError("a shard is written as 1/4")
    return int(match[1]), int(match[2])


if __name__ == "__main__":
    sys.exit(main())
