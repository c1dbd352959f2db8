"""The operator's page. Everybody else is told that there is none."""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from explorer.operator import operator_page


@never_cache
@require_safe
def operator(request: HttpRequest) -> HttpResponse:
    """Show the page to the addresses of `settings.OPERATOR_ADDRESSES`, signed in."""
    if not request.user.is_staff:
        raise Http404
    response = render(request, "explorer/operator.html", {"page": operator_page.read()})
    response.headers["X-Robots-Tag"] = "noindex"
    return response
