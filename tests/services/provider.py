"""An identity provider next to a hub, and the beginning of a sign-in with it."""

import re
from dataclasses import dataclass

import httpx

from tests.identity.oauth.person import parse_form
from tests.services.conftest import Hub

NEXT = "/admin/tools_app/tool/"


@dataclass
class Provider:
    """A provider at `url`, which `hub` knows as the issuer with the id `issuer`."""

    url: str
    issuer: str
    hub: Hub

    @property
    def hub_url(self) -> str:
        """The URL of the hub."""
        return self.hub.webs[0].url

    def begin_sign_in(self, browser: httpx.Client) -> httpx.Response:
        """Choose the company on the hub's page. Returns the provider's first page."""
        page = browser.get(f"{self.hub_url}/sign-in/demo/", params={"next": NEXT})
        begin = re.search(rf'action="([^"]*{self.issuer}[^"]*)"', page.text)
        assert begin, page.text
        fields = {**parse_form(page.text).fields, "next": NEXT}
        return browser.post(self.hub_url + begin[1], data=fields, headers={"Origin": self.hub_url})
