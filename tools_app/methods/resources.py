"""Resources, their templates, and skills: directories of instructions among a tenant's resources.

`resources/list`, `resources/templates/list` and `resources/read`; and the extension io.modelcontextprotocol/skills.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from tools_app.calls import pipeline
from tools_app.calls.request import RequestContext, cacheable_result
from tools_app.calls.run import Reading
from tools_app.catalog import compiled, skills
from tools_app.catalog.compiled import Catalog, CompiledResource
from tools_app.catalog.shaping import part_of
from tools_app.catalog.skills import DYNAMIC, Skill
from tools_app.catalog.tool_api.context import ToolContext
from tools_app.catalog.tool_api.results import ResourceResult
from tools_app.core.database import run_in_db_thread
from tools_app.identity.principal import Principal
from tools_app.methods import paging, whole_results
from tools_app.methods.registry import BOTH_ERAS, method
from tools_app.protocol import content
from tools_app.protocol.errors import INVALID_PARAMS, RpcError, resource_not_found
from tools_app.protocol.inbound import text_in
from tools_app.protocol.versions import Era, has_icons, has_structured_content

TEMPLATES_LIST: Final = "resources/templates/list"


@method("resources/list", *BOTH_ERAS)
async def list_resources(context: RequestContext) -> bytes:
    """List the tenant's resources by URI (resources, §Listing Resources). Raises RpcError for a bad cursor."""
    return await paging.page(RESOURCES, context)


@method(TEMPLATES_LIST, *BOTH_ERAS)
async def list_templates(context: RequestContext) -> bytes:
    """List the tenant's resource templates (resources, §Resource Templates). Raises RpcError for a bad cursor."""
    return await paging.page(TEMPLATES, context)


@method("resources/read", *BOTH_ERAS)
async def read(context: RequestContext) -> bytes:
    """Return the contents of a resource (resources, §Reading Resources). Raises RpcError."""
    uri = text_in(context.params, "uri")
    found = await compiled.cache.get(context.principal.tenant_id)
    if (part := part_of(uri)) is not None:
        return await whole_results.read(context, found, uri, part)
    named = found.find_resource(uri) if found else None
    if named is None or not context.principal.may("resource", "resources/read", named[0].name, found):
        missing = resource_not_found(uri, modern=context.era is Era.MODERN)
        raise await pipeline.refuse_reading(context, uri, {}, missing)
    resource, variables = named
    reading = Reading("resources/read", uri, partial(_run, resource, uri), resource.timeout_seconds)
    return await pipeline.read(context, reading, variables)


async def _run(resource: CompiledResource, uri: str, variables: dict[str, Any], context: ToolContext) -> ResourceResult:
    return await resource.read(uri, variables, context)


def described(resource: CompiledResource, version: str) -> dict[str, Any]:
    """Return a resource or a template in the form of a revision (resources, §Data Types)."""
    definition = resource.definition
    key = "uriTemplate" if resource.template.variables else "uri"
    body: dict[str, Any] = {key: definition.uri, "name": definition.name}
    if definition.title and has_structured_content(version):
        body["title"] = definition.title
    if definition.description:
        body["description"] = definition.description
    if definition.mime_type:
        body["mimeType"] = definition.mime_type
    if annotations := content.annotations(definition.annotations):
        body["annotations"] = annotations
    if has_icons(version) and (icons := content.icons(definition.icons)):
        body["icons"] = icons
    return body


RESOURCES = paging.ListKind(
    "resources/list",
    "resources",
    described,
    lambda found, principal: paging.permitted(found.resources, found, principal, "resource", "resources/list"),
)
TEMPLATES = paging.ListKind(
    TEMPLATES_LIST,
    "resourceTemplates",
    described,
    lambda found, principal: paging.permitted(found.templates, found, principal, "resource", TEMPLATES_LIST),
)


SKILLS: Final = "io.modelcontextprotocol/skills"
SETTINGS: Final = {"directoryRead": True}
DIRECTORY: Final = "inode/directory"


@method("skills/list", Era.MODERN)
async def list_skills(context: RequestContext) -> bytes:
    """List the tenant's skills, page by page (§Listing Skills). Raises RpcError for a bad cursor."""
    found = await compiled.cache.get(context.principal.tenant_id)
    principal, name = context.principal, context.request.method
    served = await run_in_db_thread(_permitted_skills, found, principal, name) if found else {}
    return paging.page_of_entries(paging.ListKind("skills/list", "skills", described_skill), served, context)


@method("skills/get", Era.MODERN)
async def get_skill(context: RequestContext) -> bytes:
    """Return a skill by the URI of its SKILL.md (§Getting a Skill). Raises RpcError."""
    uri = text_in(context.params, "uri")
    found = await _catalog(context)
    served = await run_in_db_thread(_permitted_skills, found, context.principal, context.request.method)
    skill = served.get(uri)
    if skill is None:
        raise RpcError(INVALID_PARAMS, f"There is no skill at {uri}.", {"uri": uri})
    return cacheable_result({"skill": described_skill(skill, context.version)}, context.era)


@method("resources/directory/read", Era.MODERN)
async def read_directory(context: RequestContext) -> bytes:
    """List the direct children of a skill's directory (§Reading Directories). Raises RpcError."""
    uri = text_in(context.params, "uri")
    found = await _catalog(context)
    permitted = paging.permitted(found.resources, found, context.principal, "resource", context.request.method)
    below = await run_in_db_thread(skills.children, found, uri, permitted)
    if not below:
        raise RpcError(INVALID_PARAMS, f"{uri} is no directory of a skill.", {"uri": uri})
    children = {child: found.resources.get(child) for child in below}
    entries = {
        child: described(resource, context.version)
        if resource
        else {"uri": child, "name": child.rpartition("/")[2], "mimeType": DIRECTORY}
        for child, resource in children.items()
    }
    listing = paging.ListKind(f"resources/directory/read {uri}", "resources", lambda entry, _version: entry)
    return paging.page_of_entries(listing, entries, context)


def _permitted_skills(found: Catalog, principal: Principal, name: str) -> Mapping[str, Skill]:
    """Return the skills that the caller may use with a method, by URI, each with those of its files that it may read.

    Queries the database.
    """
    served = skills.skills_of(found)
    if principal.names is None and principal.grants is None:
        return served
    permitted = {}
    for uri, skill in paging.permitted(served, found, principal, "resource", name).items():
        files = skill.files and tuple(one for one in skill.files if principal.may("resource", name, one.uri, found))
        permitted[uri] = replace(skill, files=files)
    return permitted


def described_skill(skill: Skill, _version: str) -> dict[str, Any]:
    """Return the entry of a skill (§Skill Entries)."""
    files = skill.files and [{"uri": file.uri, "digest": file.digest, "size": file.size} for file in skill.files]
    return {"uri": skill.uri, "frontmatter": skill.frontmatter, "resources": files or DYNAMIC}


async def _catalog(context: RequestContext) -> Catalog:
    found = await compiled.cache.get(context.principal.tenant_id)
    if found is None:
        raise RpcError(INVALID_PARAMS, "This tenant offers nothing.")
    return found
