from django.urls import path, register_converter
from django.urls.converters import StringConverter
from django.views.generic import TemplateView

from api import health
from explorer import api_docs, operator_page, reverts, views
from explorer.batch import badge
from explorer.lists import batch_list, chains, webhook_list
from explorer.lists.dashboard import dashboard
from explorer.lists.home import home
from explorer.new_batch import views as new_batch_views
from queries import columns

app_name = "explorer"


class _OfPage(StringConverter):
    """An identifier in the path of a batch's page, in any case. Paths that end with .json belong to the API."""

    regex = r"[^/]+(?<!\.json)"

    def to_python(self, value: str) -> str:
        """Return the identifier as it is stored. Other text stays unchanged, so that an error page can show it."""
        return columns.batch_id(value) or value


register_converter(_OfPage, "batch")

urlpatterns = [
    path("", home, name="home"),
    path("new-batch", new_batch_views.new_batch, name="new_batch"),
    path("new-batch/estimate", new_batch_views.estimate, name="new_batch_estimate"),
    path("robots.txt", TemplateView.as_view(template_name="robots.txt", content_type="text/plain"), name="robots"),
    path("favicon.ico", views.favicon, name="favicon"),
    path("api/docs", api_docs.page, name="api_docs"),
    path("chains", chains.page, name="chains"),
    path("operator", operator_page.operator, name="operator"),
    path("operator/stop", operator_page.stop, name="stop"),
    path("facts/why", reverts.page, name="reverts"),
    path("dashboard", dashboard, name="dashboard"),
    path("webhooks", webhook_list.page, name="webhooks"),
    path("webhooks/test", webhook_list.send_test, name="send_test"),
    path("webhooks/deliveries/<delivery_id>", views.send_again, name="send_listed_again"),
    path("explorer", batch_list.page, name="batches"),
    path("explorer.csv", batch_list.file, name="batches_csv"),
    path("explorer/query/<batch:internal_id>", views.batch, name="batch"),
    path("explorer/query/<batch:internal_id>/cancel", views.cancel, name="cancel"),
    path("explorer/query/<batch:internal_id>/label", views.label, name="label"),
    path("explorer/query/<batch:internal_id>/badge.svg", badge.image, name="badge"),
    path("explorer/query/<batch:internal_id>/facts.csv", views.facts_csv_file, name="facts_csv"),
    path("explorer/query/<batch:internal_id>/deliveries", views.deliveries, name="deliveries"),
    path("explorer/query/<batch:internal_id>/deliveries/<delivery_id>", views.send_again, name="send_again"),
    path("explorer/query/<batch:internal_id>/<int:number>", views.query, name="query"),
    path("explorer/query/<batch:internal_id>/<int:number>/read", views.read_now, name="read"),
    path("explorer/query/<batch:internal_id>/transactions", views.transactions, name="transactions"),
    path("livez", health.livez, name="live"),
    path("is-alive", health.is_alive, name="is_alive"),
    path("readyz", health.readyz, name="ready"),
    path("metrics", health.metrics, name="metrics"),
]
