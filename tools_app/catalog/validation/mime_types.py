"""MIME types of resources: validation, and guesses for files without one."""

import mimetypes
import re

from tools_app.models import Resource, ResourceKind

MIME_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(?:; ?[\w.+-]+=[\w.+-]+)*", re.ASCII)


def mime_type_fault(mime_type: str) -> str | None:
    """Return the error of a MIME type, which is optional."""
    return "Enter a MIME type, such as text/markdown." if mime_type and not MIME_TYPE.fullmatch(mime_type) else None


def guessed_mime_type(name: str) -> str:
    """Guess the MIME type of a file from the extension of its name or URI."""
    guessed = mimetypes.guess_type(name)[0] or ""
    return guessed if MIME_TYPE.fullmatch(guessed) else "application/octet-stream"


def mime_type_of(resource: Resource) -> str:
    """Return the MIME type of a resource; for a file without one, a guess from its URI."""
    if resource.mime_type or resource.kind != ResourceKind.FILE:
        return resource.mime_type
    return guessed_mime_type(resource.uri)
