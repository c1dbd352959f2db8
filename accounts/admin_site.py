"""Django's admin, for the people in `settings.OPERATOR_ADDRESSES`. They sign in with their wallet, like everybody."""

from django.contrib.admin import AdminSite
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import reverse


class OperatorSite(AdminSite):
    site_title = site_header = "Batch Query Service: operation"
    index_title = "What the operator decides"
    enable_nav_sidebar = False

    def login(self, request: HttpRequest, extra_context: dict[str, object] | None = None) -> HttpResponse:
        """Lead to the sign-in: there are no passwords. A signed-in user who still comes here is not an operator."""
        if request.user.is_authenticated:
            raise PermissionDenied
        return redirect_to_login(request.GET.get("next", reverse("admin:index")))

    def logout(self, request: HttpRequest, extra_context: dict[str, object] | None = None) -> HttpResponse:  # type: ignore[override]
        """Sign out as the service does, which logs the event and leads to the sign-in page."""
        from accounts.sign_in_views import sign_out  # noqa: PLC0415 (each command loads the admin, and would load sign-in)

        return sign_out(request)
