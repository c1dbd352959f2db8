"""hardhat (EDR) and ganache: chains for development, made by others. They make a block each second."""

from collections.abc import Sequence
from pathlib import Path

from devnet.devchain import PROJECT
from devnet.real_node import RealNode

_PACKAGES = PROJECT / "tests/real_nodes/npm/node_modules"
_MNEMONIC = "test test test test test test test test test test test junk"
_HARDHAT_CONFIG = """
export default {
  networks: {
    node: { type: "edr-simulated", chainId: %d, hardfork: "prague", mining: { auto: false, interval: 1000 } },
  },
};
"""


class Hardhat(RealNode):
    def arguments(self, folder: Path) -> Sequence[str]:
        # It wants to be a package of the project that it is run in.
        (folder / "package.json").write_text('{"type": "module"}')
        (folder / "node_modules").symlink_to(_PACKAGES)
        (folder / "hardhat.config.js").write_text(_HARDHAT_CONFIG % self.chain_id)
        script = str(_PACKAGES / "hardhat/dist/src/cli.js")
        return [script, "node", "--hostname", "127.0.0.1", "--port", str(self.port)]


class Ganache(RealNode):
    def arguments(self, folder: Path) -> Sequence[str]:
        options = {
            "server.host": "127.0.0.1",
            "server.port": self.port,
            "wallet.mnemonic": _MNEMONIC,
            "chain.chainId": self.chain_id,
            "miner.blockTime": 1,
            "database.dbPath": folder / "data",
        }
        script = str(_PACKAGES / "ganache/dist/node/cli.js")
        return [script, *(f"--{name}={value}" for name, value in options.items())]
