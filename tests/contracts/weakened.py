"""Registries that lack a check, to see that it is this check that refuses what they take."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from contracts import Artifact
from contracts.build import read_sources, run_compiler


@dataclass(frozen=True)
class Removal:
    """In the source of that name, `check` is replaced by `by`. It is there once."""

    source: str
    check: str
    by: str = ""

    def apply(self, text: str) -> str:
        if text.count(self.check) != 1:
            raise ValueError(f"{self.source} has {text.count(self.check)} times: {self.check}")
        return text.replace(self.check, self.by)


def compile_without(checks: Mapping[str, Iterable[Removal]], registries: Sequence[Iterable[str]]) -> list[Artifact]:
    """The registry without each of these sets of checks, which are removals by name.

    Raises ValueError where a check isn't there, or the registry doesn't compile without it.
    """
    removals = [[each for name in names for each in checks[name]] for names in registries]
    # Starting the compiler takes as long as a third of a registry.
    half = len(removals) // 2
    with ThreadPoolExecutor(2) as pool:
        return [artifact for batch in pool.map(_compile, (removals[:half], removals[half:])) for artifact in batch]


def _compile(registries: Sequence[Iterable[Removal]]) -> list[Artifact]:
    texts: dict[str, str] = {}
    for place, removals in enumerate(registries):
        sources = read_sources("src")
        for removal in removals:
            path = f"src/{removal.source}.sol"
            sources[path] = removal.apply(sources[path])
        texts |= {f"{place}/{path}": text for path, text in sources.items()}
    paths = [f"{place}/src/FactsRegistry.sol" for place in range(len(registries))]
    output = run_compiler(texts, {path: {"FactsRegistry": ["abi", "evm.bytecode.object"]} for path in paths})
    # It may well warn of what is unused now.
    if errors := [each["formattedMessage"] for each in output.get("errors", []) if each["severity"] == "error"]:
        raise ValueError("\n".join(errors))
    compiled = [output["contracts"][path]["FactsRegistry"] for path in paths]
    return [Artifact(each["abi"], bytes.fromhex(each["evm"]["bytecode"]["object"])) for each in compiled]
