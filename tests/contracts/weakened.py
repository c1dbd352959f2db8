"""Registries that lack a check. They show that exactly this check refuses a proof."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from campaigns.fuzzing.mutated import compile_each
from chains.contract_artifacts import Artifact
from contracts.build import read_sources

_CHILD = "xor(shr(4, path), parent)"
# The comparison of a child's path with the branch's in `BranchWriter`, and versions of it that ignore some nibbles.
UNCOMPARED = {
    "not the last nibble": (_CHILD, f"and({_CHILD}, not(0x0f))"),
    "not the first nibble": (_CHILD, f"shl(add(bits, 8), {_CHILD})"),
    "only the last four nibbles": (_CHILD, f"and({_CHILD}, 0xffff)"),
}


@dataclass(frozen=True)
class Removal:
    """A change of a source, in which `by` replaces `check`. The check must occur once."""

    source: str
    check: str
    by: str = ""

    def apply(self, text: str) -> str:
        if text.count(self.check) != 1:
            raise ValueError(f"{self.source} has {text.count(self.check)} times: {self.check}")
        return text.replace(self.check, self.by)


def compile_without(
    checks: Mapping[str, Iterable[Removal]], registries: Sequence[Iterable[str]], contract: str = "FactsRegistry"
) -> list[Artifact]:
    """Return a version of the contract for each set of checks, without the checks in that set.

    `removals` has the checks by name. Raise ValueError if a check isn't found, or the contract doesn't compile without
    it.
    """
    variants = [_sources(removal for name in names for removal in checks[name]) for names in registries]
    return compile_each(variants, f"src/{contract}.sol")


def _sources(removals: Iterable[Removal]) -> dict[str, str]:
    sources = read_sources("src")
    for removal in removals:
        path = f"src/{removal.source}.sol"
        sources[path] = removal.apply(sources[path])
    return sources
