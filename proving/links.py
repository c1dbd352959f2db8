"""A connection with all that is needed to act on it."""

from dataclasses import dataclass

from chains.config import Connection
from chains.rpc import RpcClient
from config.chains import get_chains, get_rpc
from proving import registries
from proving.registries import Deployed


@dataclass(frozen=True)
class Link:
    connection: Connection
    registry: Deployed
    source: RpcClient
    destination: RpcClient


def find(destination: int, source: int) -> Link | None:
    """None as long as no registry is deployed, or the connection isn't configured any more."""
    connection = get_chains().connection(source, destination)
    registry = registries.find(destination, source)
    if connection is None or registry is None:
        return None
    return Link(connection, registry, get_rpc(source), get_rpc(destination))
