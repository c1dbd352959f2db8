"""Run a module on chains on which a mutant of a schema is chosen: `python -m campaigns.contract_mutants.choosing`.

The arguments are the mutant's number, or 0 for the original, the module, and the module's arguments.
"""

import runpy
import sys
from collections.abc import Sequence
from typing import Any

from campaigns.contract_mutants.schemata import SWITCH
from devnet.devchain import DevChain


def choose(number: int) -> None:
    """Let each development chain of this process choose this mutant, and accept code of any size."""
    begin, start = DevChain.__init__, DevChain.start

    def without_size_limit(self: DevChain, *args: Any, extra_args: Sequence[str] = (), **options: Any) -> None:
        begin(self, *args, extra_args=(*extra_args, "--disable-code-size-limit"), **options)

    def chosen(self: DevChain) -> None:
        start(self)
        if number:
            self.rpc("anvil_setBalance", SWITCH, hex(number))

    DevChain.__init__ = without_size_limit  # type: ignore[method-assign]
    DevChain.start = chosen  # type: ignore[method-assign]


def run(module: str, arguments: Sequence[str]) -> None:
    """Run a module as `python -m` does."""
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    choose(int(sys.argv[1]))
    run(sys.argv[2], sys.argv[3:])
