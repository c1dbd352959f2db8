"""`GET /metrics`, in the text format of Prometheus."""

from functools import cache

from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from config import process_metrics
from config.error_answers import error_answer
from config.metrics_access import may_read
from proving.health.service_metrics import ServiceMetrics


@cache
def _of_service() -> ServiceMetrics:
    """Return the metrics of the service. There is one object in each process, which keeps what it has found."""
    return ServiceMetrics()


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    if not may_read(request.META.get("REMOTE_ADDR", ""), request.headers, behind_proxy=True):
        return error_answer(403, "forbidden", "The metrics are for the operator: see METRICS_ALLOWED_NETWORKS.")
    return HttpResponse(process_metrics.exposition([_of_service()]), content_type=process_metrics.CONTENT_TYPE)
