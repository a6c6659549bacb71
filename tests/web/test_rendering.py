"""A page of the documentation as HTML: anchors, links, code and diagrams."""

import pytest

from tools_app.web.documentation import markdown
from tools_app.web.documentation.diagrams import DiagramError, steps


def rendered(source: str, known: dict[str, str] | None = None) -> str:
    return markdown.render(markdown.parse(source), (known or {}).get)


def test_headings_have_the_anchors_of_github_one_level_below_the_page() -> None:
    html = rendered("# The `hub`\n\n## Rotate a key: how?\n\n## Same\n\n## Same\n")

    assert '<h2 id="the-hub">The <code>hub</code></h2>' in html
    assert '<h3 id="rotate-a-key-how">' in html
    assert html.index('id="same"') < html.index('id="same-1"')
    assert '<a class="doc-anchor" href="#same-1" aria-label="Link to Same">' in html


def test_links_to_other_pages_are_rewritten_and_links_to_nothing_are_text() -> None:
    html = rendered("[Keys](keys.md#rotate), [code](../setup.py), [site](https://example.com)", {"keys.md#rotate": "k"})

    assert html == '<p><a href="k">Keys</a>, code, <a href="https://example.com">site</a></p>\n'


@pytest.mark.parametrize("address", ["javascript:alert(1)", "data:text/html,x", "//elsewhere.example/", "/admin/"])
def test_other_kinds_of_addresses_are_no_links(address: str) -> None:
    assert "href" not in rendered(f"[x]({address})")


def test_html_in_a_page_is_left_out() -> None:
    html = rendered("a <b onclick='x()'>b</b>\n\n<script>alert(1)</script>\n\n<!-- note -->\n\n`<key>`\n")

    assert html == "<p>a b</p>\n<p><code>&lt;key&gt;</code></p>\n"


def test_a_code_block_can_be_copied_and_scrolled_by_keyboard() -> None:
    html = rendered("```sh\nrun <this> && that\n```")

    assert '<pre tabindex="0"><code id="code-0">run &lt;this&gt; &amp;&amp; that\n</code></pre>' in html
    assert '<button type="button" data-copy="code-0">Copy</button>' in html


def test_a_sequence_diagram_is_a_list_of_steps() -> None:
    html = steps(
        """sequenceDiagram
    participant Web as Web process
    participant Client
    Client->>Web: POST <mcp>
    Web->>Web: authenticate
    alt it works
        Web-->>Client: 200
    else it does not
        loop each time
            Web-->>Client: 401
        end
    end
"""
    )

    assert html == (
        "<ol><li><strong>Client</strong> → <strong>Web process</strong>: POST &lt;mcp&gt;</li>"
        "<li><strong>Web process</strong>: authenticate</li>"
        "<li>Case: it works<ol><li><strong>Web process</strong> → <strong>Client</strong>: 200</li></ol></li>"
        "<li>Case: it does not<ol><li>Repeated: each time<ol>"
        "<li><strong>Web process</strong> → <strong>Client</strong>: 401</li></ol></li></ol></li></ol>"
    )


@pytest.mark.parametrize(
    "source",
    [
        "",
        "graph TD",
        "sequenceDiagram\nnote over A: x",
        "sequenceDiagram\nend",
        "sequenceDiagram\nelse x",
        "sequenceDiagram\nopt x",
    ],
)
def test_another_diagram_is_shown_as_its_text(source: str) -> None:
    with pytest.raises(DiagramError):
        steps(source)
    assert 'class="doc-code"' in rendered(f"```mermaid\n{source}\n```")
