"""All paths of the service."""

from django.contrib import admin
from django.urls import include, path

from proving import transactions_api
from queries.api import api

# Routers of other packages are added here.
api.add_router("", transactions_api.router)

urlpatterns = [
    path("admin/", admin.site.urls),
    # Before the API, which answers / with a 404 of its own.
    path("", include("explorer.urls")),
    path("", api.urls),
    path("", include("accounts.urls")),
]

handler500 = "queries.api_errors.server_error"
