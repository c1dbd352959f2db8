"""All paths of the service."""

from django.contrib import admin
from django.urls import include, path

from api import batch_estimates, batches, chain_connections, registry_facts, transactions, webhook_deliveries
from explorer.batch import batch_files
from explorer.health import healthz
from explorer.lists import chains_json
from queries.api import api

for endpoints in (
    *(batches, batch_estimates, chain_connections, registry_facts, transactions, webhook_deliveries),
    *(batch_files, chains_json, healthz),
):
    api.add_router("", endpoints.router)

urlpatterns = [
    path("admin/", admin.site.urls),
    # Before the API, which answers / with a 404 of its own.
    path("", include("explorer.urls")),
    path("", api.urls),
    path("", include("accounts.urls")),
]

handler500 = "queries.api_errors.server_error"
