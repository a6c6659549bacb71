"""Skills among a tenant's resources (the extension io.modelcontextprotocol/skills, §Skill Entries).

A skill is a directory: the stored resource `<root>/SKILL.md` and everything else below `<root>/`. Skills are read once
for each version of a catalog.
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

from tools_app.catalog.compiled import Catalog
from tools_app.core.telemetry.logs import first_of
from tools_app.core.yaml_events import refuse_growth
from tools_app.models import Resource, ResourceKind

log = logging.getLogger(__name__)

MANIFEST = "/SKILL.md"
DYNAMIC = "dynamic"
STORED = (ResourceKind.TEXT, ResourceKind.FILE)
MAX_FILES = 512
MAX_BYTES = 16 * 1024 * 1024
CATALOGS = 256
MAX_FRONTMATTER = 16 * 1024


class InvalidManifest(ValueError):
    """A SKILL.md that describes no skill; the message gives the reason."""


@dataclass(frozen=True)
class SkillFile:
    """A file of a skill: the SHA-256 digest and the number of its bytes."""

    uri: str
    digest: str
    size: int


@dataclass(frozen=True)
class Skill:
    """A skill: the URI of its SKILL.md, its frontmatter, and its files; None if they are generated when read."""

    uri: str
    frontmatter: Mapping[str, Any]
    files: tuple[SkillFile, ...] | None

    @property
    def root(self) -> str:
        """The directory of the skill."""
        return self.uri.removesuffix(MANIFEST)


class _Verbatim(yaml.SafeLoader):
    """A YAML loader that keeps what JSON can represent as written: a date stays a string."""


_Verbatim.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def frontmatter(text: str, uri: str) -> dict[str, Any]:
    """Return the frontmatter of a SKILL.md. Raises InvalidManifest."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---" or "---" not in (line.rstrip() for line in lines[1:]):
        raise InvalidManifest("It must start with frontmatter: YAML between two lines of three hyphens.")
    end = next(number for number, line in enumerate(lines) if number and line.rstrip() == "---")
    head = "\n".join(lines[1:end])
    if len(head) > MAX_FRONTMATTER:
        raise InvalidManifest(f"The frontmatter has more than {MAX_FRONTMATTER} characters.")
    try:
        refuse_growth(head, _Verbatim)
        found = yaml.load(head, _Verbatim)  # noqa: S506 - a subclass of the safe one
        orjson.dumps(found)
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise InvalidManifest(f"The frontmatter is not valid YAML: {error}") from error
    if not isinstance(found, dict) or not all(
        isinstance(found.get(field), str) and found[field] for field in ("name", "description")
    ):
        raise InvalidManifest("The frontmatter must have a name and a description.")
    directory = uri.removesuffix(MANIFEST).rpartition("/")[2]
    if found["name"] != directory:
        raise InvalidManifest(f"Its name is {found['name']!r}, but its directory {directory!r}. They must be the same.")
    return found


def skills_of(catalog: Catalog) -> Mapping[str, Skill]:
    """Return a tenant's skills by the URIs of their SKILL.md. Cached per version, otherwise queries the database."""
    return _skills(catalog.tenant_id, catalog.version, tuple(catalog.resources), tuple(catalog.templates))


def children(catalog: Catalog, directory: str, uris: Iterable[str]) -> list[str]:
    """Return the direct children of a skill's directory that are, or contain, these resources; none for any other URI.

    Queries the database.
    """
    roots = [skill.root for skill in skills_of(catalog).values()]
    if not any(directory == root or directory.startswith(f"{root}/") for root in roots):
        return []
    below = f"{directory}/"
    inside = [uri.removeprefix(below) for uri in uris if uri.startswith(below)]
    return sorted({below + path.partition("/")[0] for path in inside})


@lru_cache(maxsize=CATALOGS)
def _skills(tenant_id: UUID, _version: bytes, uris: tuple[str, ...], templates: tuple[str, ...]) -> dict[str, Skill]:
    stored = Resource.objects.filter(tenant_id=tenant_id, enabled=True, kind__in=STORED)
    manifests = stored.filter(uri__in=[uri for uri in uris if uri.endswith(MANIFEST)]).order_by("uri")
    found = {}
    invalid: list[str] = []
    for row in manifests:
        try:
            found[row.uri] = _skill(row, stored, [*uris, *templates])
        except (InvalidManifest, UnicodeDecodeError) as error:
            invalid.append(f"{row.uri}: {error}")
    if invalid:
        log.warning("%d skills of tenant %s are invalid: %s", len(invalid), tenant_id, first_of(invalid))
    return found


def _skill(manifest: Resource, stored: Any, uris: Iterable[str]) -> Skill:
    head = frontmatter(_bytes(manifest).decode(), manifest.uri)
    root = manifest.uri.removesuffix(MANIFEST) + "/"
    inside = {uri for uri in uris if uri.startswith(root)}
    rows = [row for row in stored.filter(uri__startswith=root) if row.uri in inside]
    if len(rows) < len(inside):
        # Some of its contents are generated when read, so a digest would not stay valid.
        return Skill(manifest.uri, head, None)
    contents = sorted((row.uri, _bytes(row)) for row in rows)
    files = tuple(SkillFile(uri, f"sha256:{hashlib.sha256(held).hexdigest()}", len(held)) for uri, held in contents)
    if len(files) > MAX_FILES or sum(file.size for file in files) > MAX_BYTES:
        raise InvalidManifest(
            f"It has more than {MAX_FILES} files or {MAX_BYTES} bytes, the limit of the specification."
        )
    return Skill(manifest.uri, head, files)


def _bytes(row: Resource) -> bytes:
    return row.text.encode() if row.kind == ResourceKind.TEXT else bytes(row.blob)
