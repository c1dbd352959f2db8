"""All paths of the service."""

from django.urls import include, path

from queries.api import api

urlpatterns = [
    path("", api.urls),
    path("", include("accounts.urls")),
    path("", include("explorer.urls")),
]
