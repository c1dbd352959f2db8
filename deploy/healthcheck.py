"""End with 0 if a container does its work: `healthcheck.py web`, or `worker`, which asks the web server.

A web server that answers is alive, even if it reports problems of chains and signers: a restart would mend none of
them.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from urllib.parse import urlsplit


def main(what: str) -> int:
    address = os.environ.get("HEALTHCHECK_ADDRESS", "127.0.0.1:8000")
    # It is answered only under the name that people use.
    host = urlsplit(os.environ.get("BASE_URL", "http://127.0.0.1:8000")).netloc
    path = "livez" if what == "web" else "healthz"
    request = urllib.request.Request(f"http://{address}/{path}", headers={"Host": host})
    # The address is the container's own, which no proxy of the environment reaches.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=8) as answer:
            health = json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code != 503:
            return 1
        health = json.load(error)
    except (OSError, ValueError):
        return 1
    return 0 if what == "web" or health["worker"]["running"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
