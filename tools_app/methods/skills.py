"""Skills: directories of instructions among a tenant's resources (the extension io.modelcontextprotocol/skills)."""

from typing import Any, Final

from tools_app.execution import catalog, skills
from tools_app.execution.catalog import Catalog
from tools_app.execution.skills import DYNAMIC, Skill
from tools_app.methods import pages, resources
from tools_app.methods.exchange import Exchange
from tools_app.methods.invoking import text_in
from tools_app.methods.registry import method
from tools_app.methods.results import cacheable
from tools_app.models.bridge import in_store
from tools_app.protocol.errors import INVALID_PARAMS, RpcError
from tools_app.protocol.versions import Era

SKILLS: Final = "io.modelcontextprotocol/skills"
SETTINGS: Final = {"directoryRead": True}
DIRECTORY: Final = "inode/directory"


@method("skills/list", Era.MODERN)
async def list_skills(exchange: Exchange) -> bytes:
    """The skills that the tenant serves, a page at a time (§Listing Skills). Raises RpcError for a bad cursor."""
    found = await catalog.ring.get(exchange.principal.tenant_id)
    served = await in_store(skills.skills_of, found) if found else {}
    return pages.page_of(pages.Listing("skills/list", "skills", described), served, exchange)


@method("skills/get", Era.MODERN)
async def get(exchange: Exchange) -> bytes:
    """One skill by the URI of its SKILL.md (§Getting a Skill). Raises RpcError."""
    uri = text_in(exchange.params, "uri")
    found = await _catalog(exchange)
    skill = (await in_store(skills.skills_of, found)).get(uri) if exchange.principal.may_use(uri) else None
    if skill is None:
        raise RpcError(INVALID_PARAMS, f"There is no skill at {uri}.", {"uri": uri})
    return cacheable({"skill": described(skill, exchange.version)}, exchange.era)


@method("resources/directory/read", Era.MODERN)
async def read_directory(exchange: Exchange) -> bytes:
    """What is right below a directory of a skill (§Reading Directories). Raises RpcError."""
    uri = text_in(exchange.params, "uri")
    found = await _catalog(exchange)
    below = [child for child in await in_store(skills.children, found, uri) if exchange.principal.may_use(child)]
    if not below:
        raise RpcError(INVALID_PARAMS, f"{uri} is no directory of a skill.", {"uri": uri})
    children = {child: found.resources.get(child) for child in below}
    entries = {
        child: resources.described(resource, exchange.version) if resource else _directory(child)
        for child, resource in children.items()
    }
    listing = pages.Listing(f"resources/directory/read {uri}", "resources", lambda entry, _version: entry)
    return pages.page_of(listing, entries, exchange)


def described(skill: Skill, _version: str) -> dict[str, Any]:
    """A skill's entry (§Skill Entries)."""
    files = skill.files and [{"uri": file.uri, "digest": file.digest, "size": file.size} for file in skill.files]
    return {"uri": skill.uri, "frontmatter": skill.frontmatter, "resources": files or DYNAMIC}


def _directory(uri: str) -> dict[str, Any]:
    return {"uri": uri, "name": uri.rpartition("/")[2], "mimeType": DIRECTORY}


async def _catalog(exchange: Exchange) -> Catalog:
    found = await catalog.ring.get(exchange.principal.tenant_id)
    if found is None:
        raise RpcError(INVALID_PARAMS, "This tenant offers nothing.")
    return found
