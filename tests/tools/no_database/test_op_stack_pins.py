"""The rollup's programs are built only from pinned modules."""

import os
import shutil
import subprocess
import sys

import pytest

from devnet.devchain import PROJECT

# Go adds a hash that go.sum has not, without a word, and prints the modules.
_GO = """#!/bin/sh
echo "example.org/module v1.0.0 h1:added=" >> {changed}
echo "{{}}"
"""


@pytest.mark.parametrize("changed", ["go.mod", "go.sum"])
def test_pins_that_go_changes_are_an_error_and_stay(tmp_path, changed):
    pins = tmp_path / "dev/op-stack"
    shutil.copytree(PROJECT / "dev/op-stack", pins)
    before = {path.name: path.read_bytes() for path in pins.iterdir()}
    (tmp_path / "dev/tools").mkdir()
    shutil.copy(PROJECT / "dev/tools/build_op_stack.py", tmp_path / "dev/tools")
    (tmp_path / "go").write_text(_GO.format(changed=changed))
    (tmp_path / "go").chmod(0o755)
    done = subprocess.run(
        [sys.executable, tmp_path / "dev/tools/build_op_stack.py", tmp_path / "built"],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        f"The rollup's programs can't be built: dev/op-stack/{changed} is incomplete, so go changes it.\n"
    )
    assert {path.name: path.read_bytes() for path in pins.iterdir()} == before
