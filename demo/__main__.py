"""Runs the demo on one development chain. State lives in `.demo/`, made anew at each start."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from demo import balances, command
from demo.installation import CHAIN_ID, CHAINS_TOML, Installation, Service
from devnet.devchain import DevChain


def run(running: ExitStack, options: argparse.Namespace) -> tuple[bool, Sequence[Installation]]:
    """Start everything, prove one balance and read it."""
    print("Starting a development chain with a block every second ...", flush=True)
    chain = running.enter_context(DevChain(chain_id=CHAIN_ID, block_seconds=1, port=options.rpc_port))

    print("Deploying the facts registry ...", flush=True)
    service = Service(running, options.state, CHAINS_TOML % chain.url, balances.SIGNER_KEY, options.port)
    registry = service.deploy_registry(CHAIN_ID, CHAIN_ID)

    print("Starting the web server and the worker ...", flush=True)
    service.serve()
    source = balances.Source(chain, registry)
    is_right = balances.prove(service, chain, [source], options.done_seconds, serves_on=not options.once)
    return is_right, [service]


if __name__ == "__main__":
    sys.exit(command.main(command.parser("make demo", __doc__, ".demo"), run))
