"""How gunicorn serves this: no query string in any log line, because it may hold an API key."""

from pathlib import Path

# The path alone (%(U)s), not the request line (%(r)s), which has the query string; nor the referrer.
access_log_format = '%(h)s "%(m)s %(U)s" %(s)s %(b)s %(M)sms'
accesslog = "-"
# Bodies are bounded by settings.MAX_BODY_BYTES; these bound the request line and the headers.
limit_request_line = 4094
limit_request_fields = 60
timeout = 60
# A full disk or a network file system must not stop the heartbeat of the processes.
if Path("/dev/shm").is_dir():  # noqa: S108 (memory, and gunicorn makes a private file in it)
    worker_tmp_dir = "/dev/shm"  # noqa: S108 (same)
# Its default lies in the home folder, where two installations would share it; nothing here uses it.
control_socket_disable = True
# Its own lines too: it logs a request line that it can't parse as it came.
logconfig_dict = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"redact": {"()": "config.logs.RedactKeys"}},
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {
        "console": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["redact"]},
    },
    "loggers": {
        "gunicorn.error": {"handlers": ["console"], "level": "INFO", "propagate": False},
        "gunicorn.access": {"handlers": ["console"], "level": "INFO", "propagate": False},
    },
    "root": {"handlers": [], "level": "WARNING"},
}
