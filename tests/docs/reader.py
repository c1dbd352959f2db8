"""A reader who pastes all examples of a page into one shell, in a folder like the project's."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devnet.devchain import PROJECT
from devnet.guarded_process import GuardedProcess
from tests.docs.examples import Block

# Languages of runnable blocks.
PROGRAMS = {"sh", "python", "typescript"}
# A page starts about twenty processes, which take minutes on a busy machine.
PAGE_SECONDS = 600
# Keys whose values must equal the example's. For all other keys only the type must agree.
_FIXED = {"queryStatus", "status", "database", "code", "error", "path", "message"}

# The shell sources blocks, so later blocks see their variables and functions. A serving process must print a line, run
# for another second, and end on SIGTERM.
_FUNCTIONS = r"""
set -e -o pipefail
serve() {
  setsid bash "$1" >"$2" 2>&1 & local pid=$! tenths=0
  until [ -s "$2" ] || [ $((tenths += 1)) -gt 1200 ]; do sleep 0.1; done
  sleep 1
  kill -0 $pid && [ -s "$2" ] || return 70
  kill -TERM -- -$pid; wait $pid || true
}
expect() {
  local status=0
  bash "$1" >"$2" 2>&1 || status=$?
  [ $status = "$3" ] || { echo "exit status $status instead of $3" >>"$2"; return 71; }
}
"""


@dataclass(frozen=True)
class Ran:
    block: Block
    output: str
    fault: str  # reason for a failure; empty if the block works as its page says


def make_folder(folder: Path, files: Mapping[str, str]) -> Path:
    """Make a folder with links to the project's files, and with these files of its own."""
    folder.mkdir()
    for entry in [*PROJECT.glob("[!.]*"), PROJECT / ".venv"]:
        (folder / entry.name).symlink_to(entry)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def paste(blocks: Sequence[Block], folder: Path, variables: Mapping[str, str]) -> list[Ran]:
    """Run the runnable blocks in order until one fails."""
    runnable = [block for block in blocks if block.language in PROGRAMS and not block.is_skipped]
    if not runnable:
        return []
    pasted = folder / ".pasted" / runnable[0].page.replace("/", "-")
    pasted.mkdir(parents=True)
    environment = {
        "PATH": f"{PROJECT / 'node_modules/.bin'}:{os.environ['PATH']}",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        **variables,
    }
    with (pasted / "shell.out").open("wb") as log:
        # Nothing that a page has started outlives this process: a receiver would keep its port.
        shell = GuardedProcess(["bash", "-c", _script(runnable, pasted)], cwd=folder, env=environment, stdout=log)
    try:
        code = shell.wait(PAGE_SECONDS)
        status = f"exit status {code}" if code else ""
    except subprocess.TimeoutExpired:
        status = f"not done after {PAGE_SECONDS} s"
    finally:
        shell.kill()
    printed = (pasted / "shell.out").read_text()
    started = [int(line) for line in printed.splitlines() if line.isdigit()]
    ran = []
    for block in runnable:
        if block.line in started:
            printed = (pasted / f"{block.line}.out").read_text() if (pasted / f"{block.line}.out").exists() else ""
            fault = status if block.line == started[-1] else ""
            if fault:
                printed += "".join(_logs(folder))
            ran.append(Ran(block, printed, fault or _not_done(block, printed)))
        else:
            ran.append(Ran(block, "", "not run, because a block before it failed"))
    return ran


def _script(blocks: Sequence[Block], folder: Path) -> str:
    """Return a script that runs the blocks in order, and write each with its output into the folder."""
    script = [_FUNCTIONS]
    for block in blocks:
        source, output = folder / f"{block.line}.{block.language}", folder / f"{block.line}.out"
        source.write_text(block.code)
        script.append(f"echo {block.line}")
        if block.language == "python":
            script.append(f".venv/bin/python {source} >{output} 2>&1")
        elif block.language == "typescript":
            module = source.rename(source.with_suffix(".mts"))
            script.append(f".venv/bin/node {module} >{output} 2>&1")
        elif block.marker == "serves":
            script.append(f"serve {source} {output}")
        elif block.exit_status:
            script.append(f"expect {source} {output} {block.exit_status}")
        else:
            script.append(f". {source} >{output} 2>&1")
    return "\n".join(script)


def _logs(folder: Path) -> Iterator[str]:
    """Yield what the page's commands have logged so far."""
    for path in folder.glob("*.log"):
        if not path.is_symlink():
            yield f"\n{path.name}:\n{path.read_text()}"


def _not_done(block: Block, output: str) -> str:
    is_waiting = block.language == "sh" and "batch-query-status" in block.code
    return "the batch is not DONE" if is_waiting and '"DONE"' not in output else ""


def differs(documented: Any, answered: Any, name: str = "") -> str:
    """Return how a documented answer differs in form from the real one. The result is empty if both agree."""
    if type(documented) is not type(answered):
        return f"{name or 'it'} is {answered!r}"
    if isinstance(documented, dict):
        if set(documented) != set(answered):
            return f"{name or 'it'} has the fields {sorted(answered)}"
        return next(filter(None, (differs(documented[key], answered[key], key) for key in documented)), "")
    if isinstance(documented, list):
        return differs(documented[0], answered[0], name) if documented and answered else ""
    return f"{name} is {answered!r}" if name in _FIXED and documented != answered else ""


def last_json(output: str) -> Any:
    """Return the JSON in the last line of the output."""
    return json.loads(output.strip().splitlines()[-1])
