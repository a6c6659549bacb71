"""Health check of the web process in this container: exit code 0 if it is alive. Independent of the hub's code."""

# ruff: noqa: INP001 - a script, not a package

import os
import sys
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException

PORT = 8000
SECONDS = 4.0


def lives() -> bool:
    """Whether `/healthz` returns 200 for an allowed host name."""
    name = os.environ.get("MCPHUB_ALLOWED_HOSTS", "").partition(",")[0].strip() or "localhost"
    # "*" allows every name, ".hub.example" all of its subdomains.
    host = "localhost" if name == "*" else name.removeprefix(".")
    try:
        connection = HTTPConnection("127.0.0.1", int(os.environ.get("PORT", PORT)), timeout=SECONDS)
        connection.request("GET", "/healthz", headers={"Host": host})
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False


if __name__ == "__main__":
    sys.exit(0 if lives() else 1)
