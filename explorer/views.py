"""Pages for anyone with the link. They only read."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from django_htmx.middleware import HtmxDetails

from config.chains import get_chains
from explorer import batch_json, batch_page


class HtmxRequest(HttpRequest):
    """A request that went through `HtmxMiddleware`."""

    htmx: HtmxDetails


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    connection = next(iter(get_chains().connections), None)
    return render(request, "explorer/home.html", {"base_url": settings.BASE_URL, "connection": connection})


@never_cache
@require_safe
def batch(request: HtmxRequest, internal_id: str) -> HttpResponse:
    """The page of one batch. To htmx only its changing part, or 204 if that is still the `version` it has.

    Not 304: htmx 2 would swap its empty body into the page.
    """
    page = batch_page.read(internal_id, request.GET.get("page", ""))
    if page is None:
        return render(request, "explorer/unknown_batch.html", {"internal_id": internal_id}, status=404)
    if request.htmx and request.GET.get("version") == page.version:
        response = HttpResponse(status=204)
    else:
        template = "explorer/_batch.html" if request.htmx else "explorer/batch.html"
        response = render(request, template, {"batch": page})
    patch_vary_headers(response, ["HX-Request"])
    return response


@never_cache
@require_safe
def batch_as_json(request: HttpRequest, internal_id: str) -> JsonResponse:
    """The content of the page for programs."""
    page = batch_page.read(internal_id, request.GET.get("page", ""))
    if page is None:
        return JsonResponse({"error": "No query found", "code": "not_found"}, status=404)
    return JsonResponse(batch_json.as_json(page))
