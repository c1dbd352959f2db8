from django.urls import path

from explorer.health.healthz import healthz
from explorer.health.probes import livez, readyz
from explorer.health.scrape import metrics
from explorer.new_batch import views as new_batch_views
from explorer.pages import chain_views, operator_view, views

app_name = "explorer"

urlpatterns = [
    path("", views.home, name="home"),
    path("new-batch", new_batch_views.new_batch, name="new_batch"),
    path("new-batch/estimate", new_batch_views.estimate, name="new_batch_estimate"),
    path("chains", chain_views.chains, name="chains"),
    path("chains.json", chain_views.chains_as_json, name="chains_json"),
    path("operator", operator_view.operator, name="operator"),
    path("dashboard", views.dashboard, name="dashboard"),
    path("explorer", views.batches, name="batches"),
    path("explorer/query/<internal_id>.json", views.batch_as_json, name="batch_json"),
    path("explorer/query/<internal_id>", views.batch, name="batch"),
    path("explorer/query/<internal_id>/request.json", views.request_json, name="request_json"),
    path("explorer/query/<internal_id>/facts.csv", views.facts_csv_file, name="facts_csv"),
    path("explorer/query/<internal_id>/bundle.json", views.batch_proof_bundle, name="batch_bundle"),
    path("explorer/query/<internal_id>/deliveries", views.deliveries, name="deliveries"),
    path("explorer/query/<internal_id>/deliveries/<delivery_id>", views.send_again, name="send_again"),
    path("explorer/query/<internal_id>/<int:number>", views.query, name="query"),
    # Of what is no number as well: a program is told so as JSON.
    path("explorer/query/<internal_id>/<number>/bundle.json", views.proof_bundle, name="bundle"),
    path("explorer/query/<internal_id>/<int:number>/read", views.read_now, name="read"),
    path("explorer/query/<internal_id>/transactions", views.transactions, name="transactions"),
    path("healthz", healthz, name="health"),
    path("livez", livez, name="live"),
    path("readyz", readyz, name="ready"),
    path("metrics", metrics, name="metrics"),
]
