"""The operator's page. Everybody else is told that there is none."""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from explorer.operator import operator_page

# What is looked at most, as the page names it.
_LISTS = {
    "Failing batches": "/admin/queries/batch/?failing=yes",
    "Failing blocks": "/admin/queries/block/?failing=yes",
    "Transactions": "/admin/proving/transaction/",
    "Signers": "/admin/proving/signer/",
    "Stops": "/admin/proving/stop/",
    "All of the admin": "/admin/",
}


@never_cache
@require_safe
def operator(request: HttpRequest) -> HttpResponse:
    """Show the page to the addresses of `settings.OPERATOR_ADDRESSES`, signed in."""
    if not request.user.is_staff:
        raise Http404
    response = render(request, "explorer/operator.html", {"needs": operator_page.needs(), "lists": _LISTS})
    response.headers["X-Robots-Tag"] = "noindex"
    return response
