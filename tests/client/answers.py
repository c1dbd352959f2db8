"""The API's answers about a batch."""

from typing import Any

ID = "01M7W1MRHW703BTRFFPT53VVP5"


def batch(**changed: Any) -> dict[str, Any]:
    return {
        "internalId": ID,
        "status": "DONE",
        "queryStatus": "DONE",
        "destinationChainId": "31337",
        "createdAt": "2026-01-01T00:00:00Z",
        "queries": 2,
        "queryList": [],
        "next": None,
    } | changed


def query(number: int, *facts: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {
        "number": number,
        "sourceChainId": "1",
        "selector": "block:15",
        "blockNumber": 15,
        "account": "0x" + "aa" * 20,
        "isCompleted": True,
        "facts": list(facts),
    } | changed
