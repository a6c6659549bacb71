"""What every page of the admin loads beside unfold's own style and scripts."""

from django.http import HttpRequest
from django.templatetags.static import static


def style(_request: HttpRequest) -> str:
    """What mends unfold's style."""
    return static("tools_app/admin.css")


def zone_script(_request: HttpRequest) -> str:
    """What tells the viewer's time zone: part of every page, that of the login first of all."""
    return static("tools_app/zone.js")
