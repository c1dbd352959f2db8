"""A connection with all that is needed to act on it."""

from dataclasses import dataclass

from chains.config import Connection
from chains.rpc import RpcClient
from config.chains import get_chains, get_rpc
from proving import registries
from proving.registries import Deployed, Unusable


@dataclass(frozen=True)
class Link:
    connection: Connection
    registry: Deployed
    source: RpcClient
    destination: RpcClient


def find(destination: int, source: int) -> Link:
    """Raises as `registries.find`, also where the connection isn't configured any more."""
    connection = get_chains().connection(source, destination)
    if connection is None:
        raise Unusable(f"The connection from chain {source} to chain {destination} is not configured any more.")
    return Link(connection, registries.find(destination, source), get_rpc(source), get_rpc(destination))
