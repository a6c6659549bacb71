"""Skills among a tenant's resources (the extension io.modelcontextprotocol/skills, §Skill Entries).

A skill is a directory: the stored resource `<root>/SKILL.md` and everything else below `<root>/`. What a skill holds
is read once for each version of a catalog.
"""

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

import orjson
import yaml

from tools_app.execution.catalog import Catalog
from tools_app.models import Resource, ResourceKind

log = logging.getLogger(__name__)

MANIFEST = "/SKILL.md"
DYNAMIC = "dynamic"
STORED = (ResourceKind.TEXT, ResourceKind.FILE)
MOST_FILES = 512
MOST_BYTES = 16 * 1024 * 1024
CATALOGS = 256


class BadManifest(ValueError):
    """A SKILL.md that describes no skill, and what is wrong with it."""


@dataclass(frozen=True)
class SkillFile:
    """A file of a skill: the SHA-256 of its bytes, and how many there are."""

    uri: str
    digest: str
    size: int


@dataclass(frozen=True)
class Skill:
    """One skill: where its SKILL.md is, what stands at its head, and its files; None if they are made when read."""

    uri: str
    frontmatter: Mapping[str, Any]
    files: tuple[SkillFile, ...] | None

    @property
    def root(self) -> str:
        """Its directory."""
        return self.uri.removesuffix(MANIFEST)


class _Verbatim(yaml.SafeLoader):
    """Reads what JSON can say as it was written: a date stays the text that it is."""


_Verbatim.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def frontmatter(text: str, uri: str) -> dict[str, Any]:
    """What stands at the head of a SKILL.md. Raises BadManifest."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---" or "---" not in (line.rstrip() for line in lines[1:]):
        raise BadManifest("It begins with frontmatter: YAML between two lines of three hyphens.")
    end = next(number for number, line in enumerate(lines) if number and line.rstrip() == "---")
    try:
        found = yaml.load("\n".join(lines[1:end]), _Verbatim)  # noqa: S506 - a subclass of the safe one
        orjson.dumps(found)
    except (yaml.YAMLError, TypeError) as problem:
        raise BadManifest(f"Its frontmatter is no YAML that JSON can say: {problem}") from problem
    if not isinstance(found, dict) or not all(
        isinstance(found.get(field), str) and found[field] for field in ("name", "description")
    ):
        raise BadManifest("Its frontmatter needs a name and a description.")
    directory = uri.removesuffix(MANIFEST).rpartition("/")[2]
    if found["name"] != directory:
        raise BadManifest(f"Its name is {found['name']!r}, but its directory {directory!r}: they must be the same.")
    return found


def skills_of(catalog: Catalog) -> Mapping[str, Skill]:
    """The skills of a tenant by the URIs of their SKILL.md. Asks the store, unless it was asked for this version."""
    return _skills(catalog.tenant_id, catalog.version, tuple(catalog.resources), tuple(catalog.templates))


def children(catalog: Catalog, directory: str) -> list[str]:
    """The URIs right below a directory of a skill, files and directories; none if it is no directory of one.

    Asks the store.
    """
    roots = [skill.root for skill in skills_of(catalog).values()]
    if not any(directory == root or directory.startswith(f"{root}/") for root in roots):
        return []
    below = f"{directory}/"
    inside = [uri.removeprefix(below) for uri in catalog.resources if uri.startswith(below)]
    return sorted({below + path.partition("/")[0] for path in inside})


@lru_cache(maxsize=CATALOGS)
def _skills(tenant_id: UUID, _version: int, uris: tuple[str, ...], templates: tuple[str, ...]) -> dict[str, Skill]:
    stored = Resource.objects.filter(tenant_id=tenant_id, enabled=True, kind__in=STORED)
    manifests = stored.filter(uri__in=[uri for uri in uris if uri.endswith(MANIFEST)]).order_by("uri")
    found = {}
    for row in manifests:
        try:
            found[row.uri] = _skill(row, stored, [*uris, *templates])
        except (BadManifest, UnicodeDecodeError) as problem:
            log.warning("%s of tenant %s is no skill: %s", row.uri, tenant_id, problem)
    return found


def _skill(manifest: Resource, stored: Any, uris: Iterable[str]) -> Skill:
    head = frontmatter(_bytes(manifest).decode(), manifest.uri)
    root = manifest.uri.removesuffix(MANIFEST) + "/"
    inside = {uri for uri in uris if uri.startswith(root)}
    rows = [row for row in stored.filter(uri__startswith=root) if row.uri in inside]
    if len(rows) < len(inside):
        # Something in it is made when it is read: no digest would hold.
        return Skill(manifest.uri, head, None)
    files = tuple(sorted(map(_file, rows), key=lambda file: file.uri))
    if len(files) > MOST_FILES or sum(file.size for file in files) > MOST_BYTES:
        raise BadManifest(f"It has more than {MOST_FILES} files or {MOST_BYTES} bytes, which no client has to take.")
    return Skill(manifest.uri, head, files)


def _file(row: Resource) -> SkillFile:
    content = _bytes(row)
    return SkillFile(row.uri, f"sha256:{hashlib.sha256(content).hexdigest()}", len(content))


def _bytes(row: Resource) -> bytes:
    return row.text.encode() if row.kind == ResourceKind.TEXT else bytes(row.blob)
