"""Request bodies: JSON of bounded size and depth, and nothing that the database could not keep."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from rest_framework.exceptions import ParseError
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser

from tools_app.api.v1.problems import TooLarge
from tools_app.models.storable import storable_json
from tools_app.protocol import jsonrpc
from tools_app.protocol.errors import RpcError


class JsonParser(BaseParser):
    """Reads no more of a body than the hub takes."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        """The JSON value. Raises TooLarge and ParseError."""
        most = settings.MCPHUB_MAX_BODY_BYTES
        body = stream.read(most + 1)
        if len(body) > most:
            raise TooLarge(f"The body is larger than {most} bytes.")
        if not body.strip():
            return {}
        try:
            value = jsonrpc.decode(body, settings.MCPHUB_MAX_JSON_DEPTH)
        except RpcError as problem:
            raise ParseError(f"The body is no JSON that the hub takes. {problem.message}.") from None
        if rb"\u0000" in body and storable_json(value) != value:
            raise ParseError("The body holds the character U+0000, which cannot be stored.")
        return value


class AlwaysJson(BaseContentNegotiation):
    """Answers are JSON, whatever `Accept` says: a client that asks for something else still learns what is wrong."""

    def select_parser(self, request: Any, parsers: Any) -> Any:
        """The parser for what the body is said to be; None if there is none."""
        kind = request.content_type.partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == kind), None)

    def select_renderer(self, request: Any, renderers: Any, format_suffix: str | None = None) -> Any:
        """The first renderer."""
        return renderers[0], renderers[0].media_type
