"""Programs in TypeScript that pages show for facts, and what they print."""

import html
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from devnet.devchain import PROJECT
from tests.factories import client_of
from tests.service import ALICE

NODE = PROJECT / ".venv" / "bin" / "node"


def of_block(number: int) -> list[str]:
    """Return the programs of the page with the block's facts, in the order of the facts."""
    page = client_of(ALICE).get(f"/facts?block={number}", headers={"accept": "text/html"}).text
    return [
        html.unescape(code) for code in re.findall(r"<code>(import \{[^<]* from &quot;viem&quot;[^<]*)</code>", page)
    ]


def printed(programs: Sequence[str], url: str, folder: Path) -> list[int]:
    """Return the number that each program prints, with a node of the destination chain at `url`."""
    (folder / "node_modules").symlink_to(PROJECT / "node_modules")
    for place, program in enumerate(programs):
        (folder / f"{place}.mts").write_text(program)
    (folder / "all.mts").write_text("\n".join(f'await import("./{place}.mts");' for place in range(len(programs))))
    command, environment = [NODE, folder / "all.mts"], {"RPC_URL": url}
    ran = subprocess.run(command, capture_output=True, check=True, env=environment, text=True)
    return [int(line.removesuffix("n"), 0) for line in ran.stdout.split()]
