"""What is logged, and whether errors show their insides."""

from config.environment import LOG_LEVELS, env_bool, env_choice, env_hidden

# Django's debug pages. Never where others can reach them.
DEBUG = env_bool("DEBUG", default=False)

# For people, or for what collects logs. config/gunicorn.py reads it too.
LOG_FORMAT = env_choice("LOG_FORMAT", "line", ("line", "json"))

# Where errors are reported to, beside the log; empty: nowhere.
SENTRY_DSN = env_hidden("SENTRY_DSN")

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        "redact": {"()": "config.logs.RedactKeys"},
        "refusals": {"()": "config.logs.NoTracebackOfRefusals"},
        "once": {"()": "config.database_errors.TracebackOnce"},
    },
    "formatters": {
        "line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"},
        "json": {"()": "config.logs.JsonLines"},
    },
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "formatter": LOG_FORMAT,
            "filters": ["refusals", "once", "redact"],
        },
    },
    "root": {"handlers": ["console"], "level": env_choice("LOG_LEVEL", "INFO", LOG_LEVELS)},
    "loggers": {
        # By default Django mails admins and has a handler of its own. Here, all logs go to one place.
        "django": {"handlers": [], "propagate": True},
        "django.server": {"handlers": [], "propagate": True},
        # At DEBUG these log URLs of nodes, which may hold a provider's key.
        "urllib3": {"level": "INFO"},
        "web3": {"level": "INFO"},
        # Two lines for each message otherwise, of which most only say where to look.
        "celery.worker.strategy": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING"},
    },
}
