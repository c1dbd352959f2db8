"""Run the demo on one development chain. Its state is in `.demo/`, which is emptied at each start."""

import sys

from demo import command
from demo.command import Demo
from demo.installation import CHAIN_ID, CHAINS_TOML


def run(demo: Demo) -> bool:
    """Start everything, prove one balance and read it."""
    command.say("Starting a development chain with a block every second")
    chain = demo.chain()
    (registry,) = demo.serve(CHAINS_TOML % chain.url, (CHAIN_ID, CHAIN_ID))
    return demo.prove(chain, {registry: (chain, None)})


if __name__ == "__main__":
    sys.exit(command.main(command.parser("make demo", __doc__, ".demo"), run))
