"""`bqs`, the command line. It needs the extra `cli`: `pip install 'batch-query-client[cli]'`."""

import sys
from importlib.util import find_spec


def main() -> None:
    """Run `bqs` with the arguments of this process, and end it with one of `exit_codes`."""
    # Those that are loaded later too: a command must not find that it can't store a key when it has made it.
    for name in ("click", "eth_account", "keyring", "rich"):
        if find_spec(name) is None:
            print(f"bqs needs {name}: install 'batch-query-client[cli]'.", file=sys.stderr)  # noqa: T201 (no click may be there)
            sys.exit(2)
    from batch_query_client.command_line.running import run  # noqa: PLC0415 (it needs them)

    sys.exit(run(sys.argv[1:]))
