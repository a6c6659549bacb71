"""FastMCP's proxy of the server at UPSTREAM_URL, in an environment of its own."""

import os

from fastmcp.server import create_proxy

app = create_proxy(os.environ["UPSTREAM_URL"], name="proxy").http_app(json_response=True, stateless_http=True)
