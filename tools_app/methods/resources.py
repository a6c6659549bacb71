"""`resources/list`, `resources/templates/list` and `resources/read`."""

from functools import partial
from typing import Any

from tools_app.execution import catalog
from tools_app.execution.catalog import CompiledResource
from tools_app.execution.context import ToolContext
from tools_app.execution.results import ResourceResult
from tools_app.methods import pages
from tools_app.methods.exchange import Exchange
from tools_app.methods.invoking import text_in
from tools_app.methods.reading import Reading, answered, refused
from tools_app.methods.registry import BOTH_ERAS, method
from tools_app.protocol.errors import resource_not_found
from tools_app.protocol.versions import Era, has_icons, has_structured_content


@method("resources/list", *BOTH_ERAS)
async def list_resources(exchange: Exchange) -> bytes:
    """The tenant's resources by URI (resources, §Listing Resources). Raises RpcError for a bad cursor."""
    return await pages.page(RESOURCES, exchange)


@method("resources/templates/list", *BOTH_ERAS)
async def list_templates(exchange: Exchange) -> bytes:
    """The tenant's templates (resources, §Resource Templates). Raises RpcError for a bad cursor."""
    return await pages.page(TEMPLATES, exchange)


@method("resources/read", *BOTH_ERAS)
async def read(exchange: Exchange) -> bytes:
    """What a resource holds (resources, §Reading Resources). Raises RpcError."""
    uri = text_in(exchange.params, "uri")
    found = await catalog.ring.get(exchange.principal.tenant_id)
    named = found.find_resource(uri) if found else None
    if named is None or not exchange.principal.may_use(named[0].name):
        missing = resource_not_found(uri, modern=exchange.era is Era.MODERN)
        raise await refused(exchange, uri, {}, missing)
    resource, variables = named
    reading = Reading("resources/read", uri, partial(_run, resource, uri), resource.timeout_seconds)
    return await answered(exchange, reading, variables)


async def _run(resource: CompiledResource, uri: str, variables: dict[str, Any], context: ToolContext) -> ResourceResult:
    return await resource.read(uri, variables, context)


def described(resource: CompiledResource, version: str) -> dict[str, Any]:
    """A resource or a template as the revision knows it (resources, §Data Types)."""
    definition = resource.definition
    key = "uriTemplate" if resource.template.variables else "uri"
    body: dict[str, Any] = {key: definition.uri, "name": definition.name}
    if definition.title and has_structured_content(version):
        body["title"] = definition.title
    if definition.description:
        body["description"] = definition.description
    if definition.mime_type:
        body["mimeType"] = definition.mime_type
    if definition.annotations:
        body["annotations"] = definition.annotations
    if definition.icons and has_icons(version):
        body["icons"] = definition.icons
    return body


RESOURCES = pages.Listing("resources/list", "resources", described, lambda found: found.resources)
TEMPLATES = pages.Listing("resources/templates/list", "resourceTemplates", described, lambda found: found.templates)
