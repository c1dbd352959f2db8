"""The result for all mutants: a table by contract, the survivors, and faults in the list of equivalents."""

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from campaigns.contract_mutants.generate import Mutant
from campaigns.contract_mutants.trial import REPLAY, SURVIVED, Verdict

SAME_CODE = "same code"
DOES_NOT_COMPILE = "doesn't compile"
NO_CONTRACT = "in no contract"
EQUIVALENT = "equivalent"

_COLUMNS = (REPLAY, "tests", "campaigns", "timed out", SAME_CODE, DOES_NOT_COMPILE, NO_CONTRACT, EQUIVALENT, SURVIVED)

Key = tuple[str, str, str, int]


@dataclass
class Report:
    """The outcomes of all mutants. A survivor in the list of equivalents has the outcome EQUIVALENT."""

    outcomes: dict[Mutant, Verdict]
    stale: list[str] = field(default_factory=list)
    """A sentence for each list entry that must be removed."""

    def survivors(self) -> list[Mutant]:
        return [mutant for mutant, verdict in self.outcomes.items() if verdict.outcome == SURVIVED]

    def is_fine(self) -> bool:
        return not self.stale and not self.survivors()

    def table(self) -> str:
        """Return a row for each contract and one for the total. Empty columns are left out, except the survivors'."""
        rows: dict[str, Counter[str]] = {}
        for mutant, verdict in self.outcomes.items():
            rows.setdefault(PurePosixPath(mutant.source).stem, Counter())[verdict.outcome] += 1
        total = sum(rows.values(), Counter())
        columns = [column for column in _COLUMNS if total[column] or column == SURVIVED]
        width = max(map(len, [*rows, "contract"]))
        lines = ["  ".join(["contract".ljust(width), "mutants", *columns])]
        for name, row in [*sorted(rows.items()), ("all", total)]:
            numbers = [str(row.total()).rjust(len("mutants")), *(str(row[each]).rjust(len(each)) for each in columns)]
            lines.append("  ".join([name.ljust(width), *numbers]))
        return "\n".join(lines)


def read_list(path: Path) -> dict[Key, str]:
    """Return the arguments for equivalence by mutant key.

    Raise ValueError if an entry is incomplete, unknown or duplicated.
    """
    arguments: dict[Key, str] = {}
    for entry in tomllib.loads(path.read_text()).get("equivalent", []):
        function, original, replacement, argument = (
            " ".join(str(entry.pop(each, "")).split()) for each in ("function", "original", "replacement", "argument")
        )
        key = function, original, replacement, int(entry.pop("occurrence", 1))
        if not all([*key, argument]) or entry or key in arguments:
            raise ValueError(f"{path.name}: an entry is incomplete, has something else, or is there twice: {key}")
        arguments[key] = argument
    return arguments


def judge(
    outcomes: Mapping[Mutant, Verdict], codes: Mapping[Mutant, str], listed: Iterable[Key], known: Sequence[Mutant]
) -> Report:
    """Return the report on these mutants. One entry of the list is enough for several mutants with the same code.

    `codes` has the names of the survivors' codes. They may be missing if all survivors are listed. `known` has all
    existing mutants, selected or not.
    """
    keys = {mutant.key: mutant for mutant in known}
    arguments = set(listed)
    equivalent = {codes[mutant] for mutant in outcomes if mutant in codes and mutant.key in arguments}
    report = Report({})
    for mutant, verdict in outcomes.items():
        has_argument = mutant.key in arguments or codes.get(mutant) in equivalent
        accepted = verdict.outcome == SURVIVED and has_argument
        report.outcomes[mutant] = Verdict(EQUIVALENT, "") if accepted else verdict
    for key in listed:
        function, original, replacement, occurrence = key
        shown = f"{function}: {original}  ->  {replacement}" + (f" (occurrence {occurrence})" if occurrence > 1 else "")
        if key not in keys:
            report.stale.append(f"There is no such mutant: {shown}")
        elif (outcome := outcomes.get(keys[key])) and outcome.outcome != SURVIVED:
            report.stale.append(f"It needs no argument, its outcome is `{outcome.outcome}`: {shown}")
    return report
