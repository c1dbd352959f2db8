"""Under which address the service is reached, and what stands before it.

`BASE_URL` decides how strict security is. With `https` cookies, redirects and HSTS are strict. With `http`, for one's
own machine, they are not, because browsers would not send the cookies at all.
"""

from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from config.environment import env_bool, env_int, env_list, env_str

# The address that people type. Sign-in messages are bound to it, never to the Host header of a request.
BASE_URL = env_str("BASE_URL", "http://127.0.0.1:8000").rstrip("/")
_base = urlsplit(BASE_URL)
if _base.scheme not in {"http", "https"} or not _base.hostname or _base.path or _base.query:
    raise ImproperlyConfigured(f"BASE_URL must look like https://example.org, not {BASE_URL!r}.")
_https = _base.scheme == "https"
ALLOWED_HOSTS = [_base.hostname, *env_list("ALLOWED_HOSTS")]
CSRF_TRUSTED_ORIGINS = [BASE_URL]
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = _https
SECURE_HSTS_SECONDS = env_int("HSTS_SECONDS", 365 * 24 * 3600) if _https else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = bool(SECURE_HSTS_SECONDS)
if env_bool("BEHIND_TLS_PROXY", default=False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
# The header in which a reverse proxy in front of us puts the client's address, such as X-Real-IP. Empty: no proxy.
CLIENT_ADDRESS_HEADER = env_str("CLIENT_ADDRESS_HEADER", "")
# The header in which that proxy writes its id of the request, such as X-Request-Id. Empty: each request gets one here.
REQUEST_ID_HEADER = env_str("REQUEST_ID_HEADER", "")
