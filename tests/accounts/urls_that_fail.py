"""URLs of the service, and of views that fail while they hold a key."""

from django.http import HttpRequest, HttpResponse
from django.urls import include, path


def fail(request: HttpRequest) -> HttpResponse:
    raise RuntimeError(f"{request!r} failed: {request.get_full_path()} {request.headers!r} {vars(request)!r}")


urlpatterns = [path("", include("config.urls")), path("fail", fail)]
