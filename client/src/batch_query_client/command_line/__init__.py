"""`bqs`, the command line. It needs the extra `cli`: `pip install 'batch-query-client[cli]'`."""

import sys


def main() -> None:
    """Runs `bqs` with the arguments of this process, and ends it with one of `exit_codes`."""
    try:
        from batch_query_client.command_line.running import run  # noqa: PLC0415 (to say in a sentence what is missing)
    except ModuleNotFoundError as missing:
        name = (missing.name or "more").partition(".")[0]
        print(f"bqs needs {name}: install 'batch-query-client[cli]'.", file=sys.stderr)  # noqa: T201 (no click may be there)
        sys.exit(2)
    sys.exit(run(sys.argv[1:]))
