"""Ask the web process in this container whether it lives: exit code 0 if it does. Without the hub's own code."""

# ruff: noqa: INP001 - a script, in no package

import os
import sys
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException

PORT = 8000
SECONDS = 4.0


def lives() -> bool:
    """Whether `/healthz` answers, under a name that the hub answers for."""
    name = os.environ.get("MCPHUB_ALLOWED_HOSTS", "").partition(",")[0].strip() or "localhost"
    # "*" allows every name, ".hub.example" all below that one.
    host = "localhost" if name == "*" else name.removeprefix(".")
    try:
        connection = HTTPConnection("127.0.0.1", int(os.environ.get("PORT", PORT)), timeout=SECONDS)
        connection.request("GET", "/healthz", headers={"Host": host})
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False


if __name__ == "__main__":
    sys.exit(0 if lives() else 1)
