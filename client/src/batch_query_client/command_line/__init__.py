"""`bqs`, the command line. It needs the extra `cli`: `pip install 'batch-query-client[cli]'`."""

import sys


def main() -> None:
    """Runs `bqs` with the arguments of this process, and ends it with one of `exit_codes`."""
    try:
        from batch_query_client.command_line.running import run  # noqa: PLC0415 (to say in a sentence what is missing)
    except ModuleNotFoundError as missing:
        sys.exit(f"bqs needs {missing.name}: install 'batch-query-client[cli]'.")
    sys.exit(run(sys.argv[1:]))
