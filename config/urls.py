"""All paths of the service."""

from django.urls import include, path

urlpatterns = [
    path("", include("accounts.urls")),
]
