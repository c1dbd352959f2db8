"""EthereumJS without a beacon chain."""

from devnet.ethereumjs import EthereumJs
from tests.real_nodes.driven_node import DrivenNode


class DrivenEthereumJs(DrivenNode, EthereumJs):
    """A chain with Prague's rules from the first block on."""
