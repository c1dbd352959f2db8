"""geth, an execution client, as a process on this machine. `make geth` builds it."""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from devnet.devchain import PROJECT
from devnet.execution_client import ExecutionClient
from devnet.genesis import genesis
from devnet.servers import ServerError

GETH, GETH_1_16 = PROJECT / ".geth" / "geth", PROJECT / ".geth" / "geth-1.16"
# geth would listen for peers on all addresses, which no flag prevents.
_CONFIG = '[Node.P2P]\nListenAddr = ""\nNoDial = true\nNoDiscovery = true\n'


class Geth(ExecutionClient):
    """A chain with Osaka's rules from the first block on, and with Amsterdam's from `amsterdam_time` on (0: the first).

    After a stop or a kill it can be started again with its data. `flags` are geth's own, and may be changed before
    that. Times are in seconds since 1970.
    """

    name = "geth"

    def __init__(
        self,
        chain_id: int,
        *,
        genesis_time: int | None = None,
        amsterdam_time: int | None = None,
        gas_limit: int = 60_000_000,
        flags: Sequence[str] = (),
        namespaces: str = "eth,net,web3",
        program: Path = GETH,
    ) -> None:
        start = int(time.time()) - 600 if genesis_time is None else genesis_time
        super().__init__(
            chain_id, genesis(chain_id, start, osaka_time=0, amsterdam_time=amsterdam_time, gas_limit=gas_limit)
        )
        self.flags, self.namespaces, self._program = flags, namespaces, program

    @property
    def building_log(self) -> Path:
        return self.folder / "log"

    def _prepare(self) -> None:
        super()._prepare()
        (self.folder / "config.toml").write_text(_CONFIG)
        made = subprocess.run(
            [*self._with_data(), "init", "genesis.json"], cwd=self.folder, capture_output=True, text=True, check=False
        )
        if made.returncode:
            raise ServerError(f"geth's data can't be made: {made.stderr.strip()[-800:]}")

    def _command(self) -> Sequence[str]:
        options = {
            "networkid": self.chain_id,
            "config": "config.toml",
            "nat": "none",
            "syncmode": "full",
            "http.addr": "127.0.0.1",
            "http.port": self.port,
            "http.api": self.namespaces,
            "authrpc.addr": "127.0.0.1",
            "authrpc.port": self._engine_port,
            "authrpc.jwtsecret": "jwt.hex",
        }
        return [*self._with_data(), "--http", "--ipcdisable", *(f"--{name}={value}" for name, value in options.items())]

    def _with_data(self) -> Sequence[str]:
        # How geth stores states is decided when it makes its data.
        return [str(self._program), "--datadir=data", *self.flags]
