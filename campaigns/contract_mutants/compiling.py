"""Compilation of mutants, several in one run. The code is cached."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from campaigns.contract_mutants.generate import Mutant, Node, imported, reached
from contracts.build import CODE, LIBRARY, ROOT_DIR, SETTINGS, artifact_name, code_of, run_compiler

# The result of `contracts.build.code_of` for each contract that a mutant may change, by the artifact's name.
Code = Mapping[str, Mapping[str, Any]]

# These contracts call all functions of the package's libraries. Others call a part.
_LIBRARY_USERS = ("test/PackageUser.sol", "test/ProvenFactsUser.sol", "test/RlpReader.sol")

# Mutants in one run of the compiler, because starting it takes seconds.
_BATCH = 6


class Store:
    """A folder of JSON values by name. Several processes may use it, because files are replaced atomically."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str) -> Any:
        """Return the value. None if it is missing."""
        path = self._folder / f"{name}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def put(self, name: str, value: Any) -> None:
        path = self._folder / f"{name}.{os.getpid()}.tmp"
        path.write_text(json.dumps(value))
        path.rename(self._folder / f"{name}.json")


class Compiler:
    """A compiler for mutants of some sources. Methods raise BuildError if the compiler can't run."""

    def __init__(self, sources: Mapping[str, str], trees: Mapping[str, Node], store: Store) -> None:
        """`sources` and `trees` are by path, as `contracts.build.read_sources` names them."""
        self._sources = sources
        self._needs = imported(trees)
        self._reached = reached(trees)
        self._contracts = {
            path: [node["name"] for node in tree["nodes"] if node["nodeType"] == "ContractDefinition"]
            for path, tree in trees.items()
        }
        self._store = store
        self._lock = (ROOT_DIR / "package-lock.json").read_text()

    def compile_all(
        self,
        mutants: Sequence[Mutant],
        *,
        jobs: int,
        folder: str = "src",
        tell: Callable[[int], None] = lambda _: None,
    ) -> dict[Mutant, Code | None]:
        """Return the code of all contracts in the folder that a mutant may change.

        The library's contracts and `_LIBRARY_USERS` count as in `src`. None if the mutant doesn't compile; empty if it
        changes no contract.

        `tell` is called with the number of newly compiled mutants.
        """
        names = {
            mutant: digest([SETTINGS, CODE, self._lock, folder, self._texts(mutant, folder)]) for mutant in mutants
        }
        known = {mutant: self._store.get(name) for mutant, name in names.items()}
        codes: dict[Mutant, Code | None] = {mutant: kept["code"] for mutant, kept in known.items() if kept}
        codes |= {mutant: {} for mutant in mutants if not self.dependents(mutant, folder)}
        tell(len(codes))
        missing = [mutant for mutant in mutants if mutant not in codes]
        # Neighbouring mutants mostly change the same source, so they need the same contracts.
        batches = [missing[place : place + _BATCH] for place in range(0, len(missing), _BATCH)]
        with ThreadPoolExecutor(jobs) as pool:
            try:
                for done in as_completed([pool.submit(self._compile, batch, folder) for batch in batches]):
                    for mutant, code in done.result().items():
                        codes[mutant] = code
                        self._store.put(names[mutant], {"code": code})
                    tell(len(done.result()))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return codes

    def harnesses(self, mutant: Mutant) -> Code:
        """Return the code of the test contracts that a mutant may change."""
        return self.compile_all([mutant], jobs=1, folder="test")[mutant] or {}

    def dependents(self, mutant: Mutant, folder: str) -> list[str]:
        """Return the paths of the folder's sources with contracts that a mutant may change."""
        folders = ("src/", LIBRARY, *_LIBRARY_USERS) if folder == "src" else (f"{folder}/",)
        return [
            path
            for path, declarations in self._reached.items()
            if path.startswith(folders) and any(mutant.is_in(declared) for declared in declarations)
        ]

    def names(self, mutant: Mutant) -> set[str]:
        """Return the names of the artifacts that a mutant may change."""
        return {
            artifact_name(path, name)
            for folder in ("src", "test")
            for path in self.dependents(mutant, folder)
            for name in self._contracts[path]
        }

    def _texts(self, mutant: Mutant, folder: str) -> dict[str, str]:
        """Return all sources that are needed to compile the contracts that the mutant may change."""
        needed = {path for dependent in self.dependents(mutant, folder) for path in self._needs[dependent]}
        return {
            path: mutant.apply(self._sources[path]) if path == mutant.source else self._sources[path] for path in needed
        }

    def _compile(self, batch: Sequence[Mutant], folder: str) -> dict[Mutant, Code | None]:
        texts: dict[str, str] = {}
        selection: dict[str, Any] = {}
        for place, mutant in enumerate(batch):
            for path, text in self._texts(mutant, folder).items():
                texts[f"{place}/{path}"] = text
                # Syntax trees are long, so only those with immutable names are requested.
                selection[f"{place}/{path}"] = {"": ["ast"]} if " immutable " in text else {}
            for path in self.dependents(mutant, folder):
                selection[f"{place}/{path}"]["*"] = list(CODE)
        # Each mutant imports its own copy of the library.
        remappings = [f"{place}/:{LIBRARY}={place}/{LIBRARY}" for place in range(len(batch))]
        output = run_compiler(texts, selection, remappings)
        if any(message["severity"] == "error" for message in output.get("errors", [])):
            # An invalid mutant makes the compiler refuse the whole run.
            if len(batch) == 1:
                return {batch[0]: None}
            return {mutant: code for each in batch for mutant, code in self._compile([each], folder).items()}
        codes: dict[Mutant, dict[str, Any]] = {mutant: {} for mutant in batch}
        for path, contracts in output.get("contracts", {}).items():
            place, _, source = path.partition("/")
            for name in contracts:
                codes[batch[int(place)]][artifact_name(source, name)] = code_of(output, path, name)
        return dict(codes)


def name_of(code: Code) -> str:
    """Return a name that is unique to the code."""
    return digest(sorted(code.items()))


def digest(value: Any) -> str:
    """Return a digest of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
