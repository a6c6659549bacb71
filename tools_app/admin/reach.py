"""What the person behind a request may see and change, found out once per request."""

from weakref import WeakKeyDictionary

from django.http import HttpRequest

from tools_app.auth.reach import Reach

__all__ = ["Reach", "reach_of"]

_reaches: "WeakKeyDictionary[HttpRequest, Reach]" = WeakKeyDictionary()


def reach_of(request: HttpRequest) -> Reach:
    """The reach of the person who is logged in on `request`."""
    reach = _reaches.get(request)
    # Logging in changes the person in the middle of a request.
    if reach is None or reach.person != request.user:
        reach = _reaches[request] = Reach(request.user)
    return reach
