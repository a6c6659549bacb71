"""A person at the admin's pages: logs in, reads lists, and switches a tool on and off."""

import http.client
import re
import time
from http.cookies import SimpleCookie
from urllib.parse import urlencode

from benchmarks.hub import PASSWORD
from benchmarks.processes import HOST

SECONDS = 120.0
TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


class PageFailed(Exception):
    """A page was not answered as it should have been."""


class Person:
    """Somebody who is logged in."""

    def __init__(self, port: int, name: str) -> None:
        self._port = port
        self._cookies: dict[str, str] = {}
        self._post("/admin/login/", {"username": name, "password": PASSWORD, "next": "/admin/"})

    def read(self, path: str) -> tuple[float, str]:
        """The seconds that a page took, and the page. Raises PageFailed."""
        started_at = time.monotonic()
        status, page = self._request("GET", path)
        seconds = time.monotonic() - started_at
        if status != http.HTTPStatus.OK:
            raise PageFailed(f"{path}: {status}")
        return seconds, page

    def switch_tool(self, id: str, *, on: bool) -> float:
        """Switch a tool on or off in the list of tools: the monotonic moment when that was sent. Raises PageFailed."""
        action = "enable_selected" if on else "disable_selected"
        return self._post("/admin/tools_app/tool/", {"action": action, "_selected_action": id})

    def _post(self, path: str, fields: dict[str, str]) -> float:
        _, page = self._request("GET", path)
        token = TOKEN.search(page)
        if token is None:
            raise PageFailed(f"{path} has no form")
        sent_at = time.monotonic()
        status, _ = self._request("POST", path, urlencode({**fields, "csrfmiddlewaretoken": token[1]}))
        if status != http.HTTPStatus.FOUND:
            raise PageFailed(f"{path}: {status}")
        return sent_at

    def _request(self, method: str, path: str, body: str = "") -> tuple[int, str]:
        cookies = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        headers = {"Cookie": cookies, "Content-Type": "application/x-www-form-urlencoded"}
        # One for each page: a server closes what a person leaves idle for some seconds.
        connection = http.client.HTTPConnection(HOST, self._port, timeout=SECONDS)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            for field in response.headers.get_all("Set-Cookie", []):
                self._cookies.update({name: morsel.value for name, morsel in SimpleCookie(field).items()})
            return response.status, response.read().decode()
        finally:
            connection.close()
