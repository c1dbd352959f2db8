"""Run the demo on one development chain. Its state is in `.demo/`, which is emptied at each start."""

import sys
from pathlib import Path

from demo import command
from demo.command import Demo
from demo.installation import CHAIN_ID, CHAINS_TOML


def run(demo: Demo) -> bool:
    """Start everything, prove one balance and read it."""
    command.say("Starting a development chain with a block every second")
    chain = demo.chain()
    (registry,) = demo.serve(CHAINS_TOML % chain.url, (CHAIN_ID, CHAIN_ID))
    is_right = demo.prove(chain, {registry: (chain, None)})
    if demo.options.picture:
        from demo import picture  # noqa: PLC0415 (only the packages for development have a browser's driver)

        picture.take(demo.service.base_url, demo.options.picture)
    return is_right


if __name__ == "__main__":
    parser = command.parser("make demo", __doc__, ".demo")
    parser.add_argument("--picture", type=Path, help="file for a picture of the batch's page (make picture)")
    sys.exit(command.main(parser, run))
