"""The endpoint that lists the configured connections between chains."""

from typing import Any

from django.http import HttpRequest
from ninja import Router, Schema

from config.configured_chains import get_chains

router = Router(tags=["Chains"])


class ChainConnection(Schema):
    originChainId: str
    destinationChainId: str


class ConnectionList(Schema):
    connections: list[ChainConnection]


@router.get("/chain-connections", operation_id="list_chain_connections", response=ConnectionList)
def chain_connections(request: HttpRequest) -> dict[str, Any]:
    """List which source chains can be proven on which destination chains."""
    return {
        "connections": [
            {"originChainId": str(connection.source_id), "destinationChainId": str(connection.destination_id)}
            for connection in get_chains().connections
        ]
    }
