"""`bqs`, the command line."""

import sys

from batch_query_client.command_line.running import run


def main() -> None:
    """Run `bqs` with the arguments of this process, and end it with one of `exit_codes`."""
    sys.exit(run(sys.argv[1:]))
