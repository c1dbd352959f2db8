"""Django's admin, for those whom `settings.OPERATOR_ADDRESSES` names. They sign in with their wallet, as everybody."""

from django.contrib.admin import AdminSite
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from accounts.sign_in_views import sign_out


class OperatorSite(AdminSite):
    site_title = site_header = "Batch Query Service: operation"
    index_title = "What the operator decides"
    enable_nav_sidebar = False

    def login(self, request: HttpRequest, extra_context: dict[str, object] | None = None) -> HttpResponse:
        """There are no passwords. Whoever is signed in and comes here is no operator."""
        if request.user.is_authenticated:
            raise PermissionDenied
        return redirect_to_login(request.GET.get("next", reverse("admin:index")))

    def logout(self, request: HttpRequest, extra_context: dict[str, object] | None = None) -> HttpResponse:  # type: ignore[override]
        """The service's own: it is logged, and leads where it leads everybody."""
        return sign_out(request)
