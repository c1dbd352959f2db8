"""The Solidity library and its examples, compiled."""

from collections.abc import Collection
from pathlib import Path

from chains.contract_artifacts import Artifact, load_artifact
from contracts.build import CODE, code_of, run_compiler
from devnet.devchain import PROJECT

_PACKAGE = PROJECT / "client" / "solidity"
SOURCES = [
    *(path for folder in ("examples", "src") for path in sorted((_PACKAGE / folder).rglob("*.sol"))),
    *sorted(Path(__file__).parent.glob("*.sol")),
]


def compile_library(names: Collection[str] = ()) -> dict[str, Artifact]:
    """Return the artifacts of the files with these names, or of all, by the contract's name.

    The ABI of a contract with code includes the registry's errors, which pass through it.
    """
    texts = {path.relative_to(PROJECT).as_posix(): path.read_text() for path in SOURCES}
    paths = [path for path in texts if not names or Path(path).stem in names]
    output = run_compiler(texts, {path: {"": ["ast"], "*": ["abi", *CODE]} for path in paths})
    assert not output.get("errors"), [message["formattedMessage"] for message in output["errors"]]
    errors = [entry for entry in load_artifact("FactsRegistry").abi if entry["type"] == "error"]
    artifacts: dict[str, Artifact] = {}
    for source, contracts in output["contracts"].items():
        for name, contract in contracts.items():
            code = code_of(output, source, name)
            bytecode, runtime = (bytes.fromhex(code[key][2:]) for key in ("bytecode", "deployedBytecode"))
            abi = [*contract["abi"], *(entry for entry in errors if bytecode and entry not in contract["abi"])]
            artifacts[name] = Artifact(abi=abi, bytecode=bytecode, runtime=runtime, immutables=code["immutables"])
    return artifacts
