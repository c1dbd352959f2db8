"""The operator's page: findings that need action, with links to the admin. Other users get 404."""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from proving.health import findings

# The admin's list for a finding, by code. Notices have no list.
_LISTS = {
    **dict.fromkeys(
        ("signer_unfunded", "signer_unreadable", "signer_waits", "nonce_gap", "receipt_unusable"), "proving/signer"
    ),
    **dict.fromkeys(("signing_stopped", "connection_paused", "signer_paused", "node_doubtful"), "proving/stop"),
    **dict.fromkeys(("no_registry", "registry_refused", ""), "proving/factsregistry"),
}


@never_cache
@require_safe
def operator(request: HttpRequest) -> HttpResponse:
    """Show the findings of `/healthz` to signed-in operators."""
    if not request.user.is_staff:
        raise Http404
    problems, notices = findings.findings()
    needs = [(finding.sentence, finding in problems, _LISTS.get(finding.code)) for finding in (*problems, *notices)]
    response = render(request, "explorer/operator/page.html", {"needs": needs})
    response.headers["X-Robots-Tag"] = "noindex"
    return response
