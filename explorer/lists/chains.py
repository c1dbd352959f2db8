"""The page of chains and connections, with the content of `/chains.json`."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from api import chain_details


@never_cache
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    return render(request, "explorer/chains/page.html", {"page": chain_details.read()})
