"""Decorators for views that require a signed-in user."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Concatenate, ParamSpec

from django.conf import settings
from django.contrib.auth.backends import BaseBackend
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import resolve_url
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.views.decorators.cache import never_cache

from accounts.models import User, may_sign_in
from config.error_answers import error_answer, wants_json

_P = ParamSpec("_P")


class SessionBackend(BaseBackend):
    """Finds the user of a session that a signature started (`settings.AUTHENTICATION_BACKENDS`)."""

    def get_user(self, user_id: int) -> User | None:
        """Return the user, or None if the user may no longer sign in."""
        user = User.objects.filter(pk=user_id).first()
        return user if user and may_sign_in(user.name) else None


def signed_in(
    view: Callable[Concatenate[HttpRequest, User, _P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, _P], HttpResponse]:
    """Call the view with the signed-in user, and redirect everybody else to the sign-in. Caches store no answer."""
    return _checked(view, "")


def signed_in_fragment(
    page: str,
) -> Callable[[Callable[Concatenate[HttpRequest, User, _P], HttpResponse]], Callable[..., HttpResponse]]:
    """Decorate a view like `signed_in`. htmx inserts its answer into the page of this URL name and the same arguments.

    A browser that opens the view's own address is redirected to that page. So is a user after signing in.
    """
    return partial(_checked, page=page)


def _checked(
    view: Callable[Concatenate[HttpRequest, User, _P], HttpResponse], page: str
) -> Callable[Concatenate[HttpRequest, _P], HttpResponse]:
    @wraps(view)
    @never_cache
    def checked(request: HttpRequest, /, *args: _P.args, **kwargs: _P.kwargs) -> HttpResponse:
        is_htmx = bool(getattr(request, "htmx", False))
        if page:
            back = reverse(page, args=args, kwargs=kwargs)
        else:
            # A redirect loses the posted fields, and a GET can't return to an address that takes only posts.
            back = request.get_full_path() if request.method == "GET" else resolve_url(settings.LOGIN_REDIRECT_URL)
        response: HttpResponse
        if page and not is_htmx:
            response = HttpResponseRedirect(back)
        elif request.user.is_authenticated:
            response = view(request, request.user, *args, **kwargs)
        elif is_htmx or wants_json(request):
            response = error_answer(401, "not_signed_in", "Sign in first.")
            if is_htmx:
                # htmx would follow a redirect and insert the sign-in page in place of the fragment.
                response.headers["HX-Redirect"] = redirect_to_login(back).url
        else:
            response = redirect_to_login(back)
        patch_vary_headers(response, ["Accept", "HX-Request"])
        return response

    return checked
