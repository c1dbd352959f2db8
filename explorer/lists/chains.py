"""The page of chains and connections, with the content of `/chains.json`."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from api import chain_details
from api.chain_details import ChainsDetail, ConnectionDetail


@never_cache
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    page = chain_details.kept().details
    return render(request, "explorer/chains/page.html", {"page": page, "contracts": _contracts(page)})


@dataclass(frozen=True)
class ContractRow:
    """A contract address with its connections, on one or more chains."""

    name: str
    address: str
    connections: list[ConnectionDetail] = field(default_factory=list)
    is_same_everywhere: bool = False

    @property
    def destination_ids(self) -> Sequence[int]:
        return list(dict.fromkeys(connection.destinationChainId for connection in self.connections))


def _contracts(page: ChainsDetail) -> Sequence[ContractRow]:
    """Return each address once, although connections share readers, and chains share addresses."""
    rows: dict[tuple[str, str], ContractRow] = {}
    for one in page.connections:
        for name, address, is_same in (
            ("Facts registry", one.factsRegistry, one.sameAddressEverywhere),
            ("Block hash source", one.blockHashSource, False),
            ("Facts reader", one.factsReader, one.readerSameAddressEverywhere),
        ):
            if address:
                row = rows.setdefault((name, address), ContractRow(name, address, is_same_everywhere=is_same))
                row.connections.append(one)
    return sorted(rows.values(), key=lambda row: row.name, reverse=True)
