"""The URL paths of the service."""

from django.contrib import admin
from django.urls import URLPattern, include, path

from accounts import sign_in_views
from api import (
    batch_estimates,
    batch_files,
    batches,
    chain_connections,
    chain_details,
    find_slots,
    health,
    present_api,
    read_proofs,
    registry_facts,
    transactions,
    webhook_deliveries,
)
from explorer.lists import fact_list
from explorer.lists.home import home
from queries.api import api

for endpoints in (
    *(batches, batch_estimates, chain_connections, registry_facts, transactions, webhook_deliveries),
    *(batch_files, chain_details, find_slots, health, present_api, read_proofs),
):
    api.add_router("", endpoints.router)

api_patterns, *_ = api.urls
(list_facts,) = (
    pattern.callback for pattern in api_patterns if isinstance(pattern, URLPattern) and pattern.name == "list_facts"
)

urlpatterns = [
    # Operators sign in and out like users, because there are no passwords.
    path("admin/login/", sign_in_views.admin_sign_in),
    path("admin/logout/", sign_in_views.sign_out),
    path("admin/", admin.site.urls),
    # Browsers get a page at this path, and programs get the API.
    path("facts", fact_list.facts_or_api, {"api": list_facts}, name="facts"),
    path("facts.csv", fact_list.file, name="account_facts_csv"),
    # The API would answer this path with its own 404. It comes before the other pages, because programs poll it.
    path("", home),
    path("", api.urls),
    path("", include("explorer.urls")),
    path("", include("accounts.urls")),
]

handler400 = "config.unusual_requests.bad_request"
handler500 = "queries.api_endpoint.server_error"
