"""Build op-geth, op-node and op-batcher from Go's modules, for `make op-stack`.

dev/op-stack has the pinned versions and the hashes. Each program is built in its own module, whose go.sum has the
hashes of all others. Go's own cache can't be changed, so the module of op-node is copied.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PINNED = Path(__file__).resolve().parents[1] / "op-stack"
_OP_GETH, _OPTIMISM = "github.com/ethereum-optimism/op-geth", "github.com/ethereum-optimism/optimism"
# The contracts that a chain has from its first block on, as Karst's upgrade leaves them.
_PREDEPLOYS = "op-core/nuts/state/karst_state.json"


def main(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    pins = {path: path.read_bytes() for path in (PINNED / "go.mod", PINNED / "go.sum")}
    answers = _go("mod", "download", "-json", _OP_GETH, _OPTIMISM, folder=PINNED)
    # Go adds a missing hash by itself.
    if changed := [path for path, pinned in pins.items() if path.read_bytes() != pinned]:
        for path in changed:
            path.write_bytes(pins[path])
        sys.exit(
            f"The rollup's programs can't be built: dev/op-stack/{changed[0].name} is incomplete, so go changes it."
        )
    decoder, modules = json.JSONDecoder(), {}
    while answers.strip():
        module, end = decoder.raw_decode(answers.lstrip())
        answers = answers.lstrip()[end:]
        modules[module["Path"]] = Path(module["Dir"])
    _build(folder, "op-geth", modules[_OP_GETH], "./cmd/geth")
    with tempfile.TemporaryDirectory() as copies:
        copy = shutil.copytree(modules[_OPTIMISM], Path(copies) / "optimism", copy_function=shutil.copyfile)
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        _write_superchain_configs(copy / "op-core" / "superchain")
        for name in ("op-node", "op-batcher"):
            _build(folder, name, copy, f"./{name}/cmd")
        shutil.copyfile(copy / _PREDEPLOYS, folder / "predeploys.json")


def _build(folder: Path, name: str, module: Path, package: str) -> None:
    print(f"Building {name}, which takes minutes ...", flush=True)
    _go("build", "-buildvcs=false", "-o", str(folder.resolve() / name), package, folder=module)


def _write_superchain_configs(folder: Path) -> None:
    """Write the archive of known chains, which the module lacks. It has none, because only new chains are run.

    The programs compare the archive with its hash when they start.
    """
    archive = folder / "superchain-configs.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("dictionary", "")
        file.writestr("chains.json", "{}")
    (folder / f"{archive.name}.sha256").write_text(
        f"{hashlib.sha256(archive.read_bytes()).hexdigest()}  {archive.name}\n"
    )


def _go(*arguments: str, folder: Path) -> str:
    # An old Go would download a newer one.
    environment = os.environ | {"GOTOOLCHAIN": "local"}
    program = shutil.which("go") or "go"
    done = subprocess.run(
        [program, *arguments], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"The rollup's programs can't be built: go {arguments[0]} failed, and has said why.")
    return done.stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]))
