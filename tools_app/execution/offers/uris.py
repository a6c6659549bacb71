"""URI templates (RFC 6570) as far as resources need them: `{name}` for one segment of a path, `{+name}` for several."""

import re
from dataclasses import dataclass
from urllib.parse import unquote

EXPRESSION = re.compile(r"\{(\+?)([A-Za-z_][A-Za-z0-9_]*)\}")
LONGEST_URI = 8192


class BadTemplate(ValueError):
    """A text in braces that is no `{name}` or `{+name}`, or a name that is there twice."""


@dataclass(frozen=True)
class UriTemplate:
    """A template ready to match URIs. `variables` are in their order."""

    template: str
    variables: tuple[str, ...]
    _pattern: re.Pattern[str]

    def match(self, uri: str) -> dict[str, str] | None:
        """The values of the variables, percent-decoded, or None if the template does not stand for `uri`."""
        found = self._pattern.fullmatch(uri) if len(uri) <= LONGEST_URI else None
        return {name: unquote(value) for name, value in found.groupdict().items()} if found else None


def parse(template: str) -> UriTemplate:
    """Read a template. Raises BadTemplate."""
    pattern, names, end = "", [], 0
    for found in EXPRESSION.finditer(template):
        pattern += _literal(template[end : found.start()])
        several, name = found.groups()
        if name in names:
            raise BadTemplate(f"{{{name}}} is there twice.")
        names.append(name)
        pattern += f"(?P<{name}>{'.+' if several else '[^/?#]+'})"
        end = found.end()
    return UriTemplate(template, tuple(names), re.compile(pattern + _literal(template[end:])))


def is_template(uri: str) -> bool:
    """Whether a URI stands for many."""
    return "{" in uri


def _literal(text: str) -> str:
    if "{" in text or "}" in text:
        raise BadTemplate("A brace belongs to no {variable}: use letters, digits and underscore.")
    return re.escape(text)
