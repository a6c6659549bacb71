"""Skills: the extension io.modelcontextprotocol/skills for the resources of a tenant."""

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.wire.client import RawClient, error_of, message_of
from tools_app.catalog import authoring
from tools_app.methods import paging
from tools_app.models import Resource, ResourceKind, Tenant
from tools_app.tenants import keys
from tools_app.toolkit import resource

HEAD = "---\nname: {name}\ndescription: Do {name}.\nlicense: MIT\ndate: 2026-01-31\n---\n\n# {name}\n"


@pytest.fixture
def add_file(tenant: Tenant) -> Callable[..., Resource]:
    """Store a text or a file of `tenant`."""

    def save(uri: str, content: str | bytes) -> Resource:
        row = Resource(tenant=tenant, uri=uri, name=uri.rpartition("/")[2], kind=ResourceKind.TEXT)
        if isinstance(content, str):
            row.text = content
        else:
            row.kind, row.blob = ResourceKind.FILE, content
        return authoring.save_resource(row)

    return save


def listed(client: RawClient, **params: Any) -> dict[str, Any]:
    return message_of(client.modern("skills/list", params))["result"]


def test_a_skill_is_listed_with_its_frontmatter_and_every_file(
    client: RawClient, add_file: Callable[..., Resource]
) -> None:
    manifest, logo = HEAD.format(name="refunds"), b"\x00\x01"
    add_file("skill://acme/refunds/SKILL.md", manifest)
    add_file("skill://acme/refunds/img/logo.bin", logo)
    add_file("skill://acme/other.md", "no part of it")

    result = listed(client)

    assert result["resultType"] == "complete"
    assert result["cacheScope"] == "private"
    assert result["skills"] == [
        {
            "uri": "skill://acme/refunds/SKILL.md",
            "frontmatter": {"name": "refunds", "description": "Do refunds.", "license": "MIT", "date": "2026-01-31"},
            "resources": [
                {"uri": uri, "digest": "sha256:" + hashlib.sha256(content).hexdigest(), "size": len(content)}
                for uri, content in (
                    ("skill://acme/refunds/SKILL.md", manifest.encode()),
                    ("skill://acme/refunds/img/logo.bin", logo),
                )
            ],
        }
    ]
    got = message_of(client.modern("skills/get", {"uri": "skill://acme/refunds/SKILL.md"}))["result"]
    assert got["skill"] == result["skills"][0]
    assert "nextCursor" not in got


@pytest.mark.parametrize(
    ("entries", "skills", "files", "directory", "below"),
    [
        (["skill://acme/*"], 1, ["SKILL.md", "img/logo.bin"], ["SKILL.md", "img"], ["img/logo.bin"]),
        (["resource=skill://acme/SKILL.md"], 1, ["SKILL.md"], ["SKILL.md"], None),
        (["resource=skill://acme/img/logo.bin"], 0, None, ["img"], ["img/logo.bin"]),
        (["tool=skill://acme/SKILL.md"], 0, None, None, None),
    ],
)
def test_a_key_sees_of_a_skill_what_it_may_read(
    make_client: Callable[..., RawClient],
    tenant: Tenant,
    add_file: Callable[..., Resource],
    entries: list[str],
    skills: int,
    files: list[str] | None,
    directory: list[str] | None,
    below: list[str] | None,
) -> None:
    root = "skill://acme"
    add_file(f"{root}/SKILL.md", HEAD.format(name="acme"))
    add_file(f"{root}/img/logo.bin", b"1")
    client = make_client(keys.issue(tenant, "narrow", tool_patterns=entries)[1])

    def paths(method: str, params: dict[str, str]) -> list[str] | None:
        result = message_of(client.modern(method, params)).get("result")
        found = result and result.get("resources", result.get("skill", {}).get("resources"))
        return found and [one["uri"].removeprefix(f"{root}/") for one in found]

    assert len(listed(client)["skills"]) == skills
    assert paths("skills/get", {"uri": f"{root}/SKILL.md"}) == files
    assert paths("resources/directory/read", {"uri": root}) == directory
    assert paths("resources/directory/read", {"uri": f"{root}/img"}) == below
    for path in ("SKILL.md", "img/logo.bin"):
        is_read = "result" in message_of(client.modern("resources/read", {"uri": f"{root}/{path}"}))
        assert is_read is (path in [*(files or ()), *(below or ())])


def test_a_file_that_is_made_when_it_is_read_makes_its_skill_dynamic(
    client: RawClient, add_file: Callable[..., Resource], offer_resources: Callable[..., object], registries: None
) -> None:
    @resource("skill://daily/today.md")
    def today() -> str:
        return "Sunny."

    add_file("skill://daily/SKILL.md", HEAD.format(name="daily"))
    offer_resources("skill://daily/today.md")
    assert [skill["resources"] for skill in listed(client)["skills"]] == ["dynamic"]


def test_a_change_of_a_file_changes_its_digest(
    client: RawClient, add_file: Callable[..., Resource], eventually: Callable[..., object]
) -> None:
    row = add_file("skill://a/SKILL.md", HEAD.format(name="a"))
    before = listed(client)["skills"][0]["resources"]
    row.text += "More."
    authoring.save_resource(row)
    eventually(lambda: listed(client)["skills"][0]["resources"] != before)


@pytest.mark.parametrize(
    "text",
    [
        "# No head",
        "---\nname: a\n",
        "---\nname: a\n---\n",
        "---\nname: b\ndescription: Another.\n---\n",
        "---\n[1, 2\n---\n",
    ],
)
def test_a_manifest_that_describes_no_skill_is_only_a_resource(
    client: RawClient, add_file: Callable[..., Resource], text: str
) -> None:
    add_file("skill://a/SKILL.md", text)
    assert listed(client)["skills"] == []
    assert error_of(client.modern("skills/get", {"uri": "skill://a/SKILL.md"}))["code"] == -32602
    read = message_of(client.modern("resources/read", {"uri": "skill://a/SKILL.md"}))["result"]
    assert read["contents"][0]["text"] == text


def test_skills_come_in_pages(
    client: RawClient, add_file: Callable[..., Resource], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "PAGE_SIZE", 2)
    for name in ("a", "b", "c"):
        add_file(f"skill://{name}/SKILL.md", HEAD.format(name=name))
    first = listed(client)
    rest = listed(client, cursor=first["nextCursor"])
    assert [skill["frontmatter"]["name"] for skill in first["skills"] + rest["skills"]] == ["a", "b", "c"]
    assert "nextCursor" not in rest
    assert error_of(client.modern("skills/list", {"cursor": "x"}))["code"] == -32602


def test_a_directory_lists_its_direct_children(client: RawClient, add_file: Callable[..., Resource]) -> None:
    add_file("skill://x/a/SKILL.md", HEAD.format(name="a"))
    add_file("skill://x/a/docs/deep/one.md", "1")
    add_file("skill://x/a/docs/two.md", "2")

    def below(uri: str) -> list[tuple[str, str | None]]:
        result = message_of(client.modern("resources/directory/read", {"uri": uri}))["result"]
        return [(child["uri"], child.get("mimeType")) for child in result["resources"]]

    assert below("skill://x/a") == [("skill://x/a/SKILL.md", None), ("skill://x/a/docs", "inode/directory")]
    assert below("skill://x/a/docs") == [
        ("skill://x/a/docs/deep", "inode/directory"),
        ("skill://x/a/docs/two.md", None),
    ]


@pytest.mark.parametrize("uri", ["skill://x/a/SKILL.md", "skill://x", "skill://x/a/none", "skill://x/a/", "docs://y"])
def test_a_uri_that_is_no_directory_of_a_skill_is_rejected(
    client: RawClient, add_file: Callable[..., Resource], uri: str
) -> None:
    add_file("skill://x/a/SKILL.md", HEAD.format(name="a"))
    add_file("docs://y/page", "outside")
    error = error_of(client.modern("resources/directory/read", {"uri": uri}))
    assert (error["code"], error["data"]) == (-32602, {"uri": uri})


def test_another_tenants_skill_looks_like_none(
    make_client: Callable[..., RawClient], other_key: str, add_file: Callable[..., Resource]
) -> None:
    add_file("skill://a/SKILL.md", HEAD.format(name="a"))
    stranger = make_client(other_key)
    assert listed(stranger)["skills"] == []
    for method, uri in (("skills/get", "skill://a/SKILL.md"), ("resources/directory/read", "skill://a")):
        assert error_of(stranger.modern(method, {"uri": uri}))["code"] == -32602


def test_callers_without_a_key_see_the_skills_that_a_public_tenant_names(
    make_client: Callable[..., RawClient], tenant: Tenant, add_file: Callable[..., Resource]
) -> None:
    tenant.is_public, tenant.public_tools = True, ["skill://open/*"]
    tenant.save()
    for name in ("open", "shut"):
        add_file(f"skill://{name}/SKILL.md", HEAD.format(name=name))
    anybody = make_client(None, path="/t/acme/mcp")
    assert [skill["uri"] for skill in listed(anybody)["skills"]] == ["skill://open/SKILL.md"]
    assert error_of(anybody.modern("skills/get", {"uri": "skill://shut/SKILL.md"}))["code"] == -32602
    assert error_of(anybody.modern("resources/directory/read", {"uri": "skill://shut"}))["code"] == -32602


def test_the_handshake_era_has_no_skills(client: RawClient) -> None:
    assert error_of(client.handshake().request("skills/list"))["code"] == -32601
