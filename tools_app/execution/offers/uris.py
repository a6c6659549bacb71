"""URI templates (RFC 6570) as far as resources need them: `{name}` for one segment of a path, `{+name}` for several."""

import re
from dataclasses import dataclass
from urllib.parse import unquote

EXPRESSION = re.compile(r"\{(\+?)([A-Za-z_][A-Za-z0-9_]*)\}")
LONGEST_URI = 8192
# What separates the parts of a path, wherever a value may end up as one.
SEPARATORS = re.compile(r"[/\\]")


class BadTemplate(ValueError):
    """A text in braces that is no `{name}` or `{+name}`, a name that is there twice, or a control character."""


@dataclass(frozen=True)
class UriTemplate:
    """A template ready to match URIs. `variables` are in their order; those in `rooted` may be absolute paths."""

    template: str
    variables: tuple[str, ...]
    rooted: frozenset[str]
    _pattern: re.Pattern[str]

    def match(self, uri: str) -> dict[str, str] | None:
        """The values of the variables, percent-decoded, or None if the template does not stand for `uri`.

        No value climbs out of where the template stands (resources, §Security Considerations).
        """
        found = self._pattern.fullmatch(uri) if len(uri) <= LONGEST_URI else None
        values = {name: unquote(value) for name, value in found.groupdict().items()} if found else None
        if values is None or any(_leaves(value, rooted=name in self.rooted) for name, value in values.items()):
            return None
        return values


def parse(template: str) -> UriTemplate:
    """Read a template. Raises BadTemplate."""
    pattern, names, rooted, end = "", [], set(), 0
    for found in EXPRESSION.finditer(template):
        pattern += _literal(template[end : found.start()])
        several, name = found.groups()
        if name in names:
            raise BadTemplate(f"{{{name}}} is there twice.")
        names.append(name)
        pattern += f"(?P<{name}>{'.+' if several else '[^/?#]+'})"
        if several and template[: found.start()].endswith("://"):
            rooted.add(name)
        end = found.end()
    return UriTemplate(template, tuple(names), frozenset(rooted), re.compile(pattern + _literal(template[end:])))


def is_template(uri: str) -> bool:
    """Whether a URI stands for many."""
    return "{" in uri


def _leaves(value: str, *, rooted: bool) -> bool:
    """Whether a value, taken for a path, would lead elsewhere: upwards, to the root, or past what can be a name."""
    parts = SEPARATORS.split(value)
    return "." in parts or ".." in parts or "\x00" in value or (parts[0] == "" and not rooted)


def _literal(text: str) -> str:
    if "{" in text or "}" in text:
        raise BadTemplate("A brace belongs to no {variable}: use letters, digits and underscore.")
    if not text.isprintable():
        raise BadTemplate("It has a character that cannot be seen: encode it with %.")
    return re.escape(text)
