"""The service's own paths, and views that fail while they know a key."""

from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from accounts import keys


def fail(request: HttpRequest) -> HttpResponse:
    raise RuntimeError(f"{request!r} failed: {request.get_full_path()} {request.headers!r} {vars(request)!r}")


def fail_in_authentication(request: HttpRequest) -> HttpResponse:
    keys.authenticate(request.presented_key.get_secret_value())  # type: ignore[attr-defined]
    return HttpResponse()


urlpatterns = [
    path("", include("config.urls")),
    path("fail", fail),
    path("fail-in-authentication", fail_in_authentication),
]
