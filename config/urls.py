"""All paths of the service."""

from django.contrib import admin
from django.urls import include, path

from explorer.endpoints import batch_files, held_facts, one_batch
from explorer.health import healthz
from explorer.pages import chains_json
from proving import estimate_api, transactions_api
from queries import own_batches, webhook_api
from queries.api import api

for endpoints in (
    *(estimate_api, own_batches, one_batch, transactions_api, held_facts, webhook_api),
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
