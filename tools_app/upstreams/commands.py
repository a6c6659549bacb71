"""The commands that stdio upstreams may run: what the operator of the hub listed or added, and nothing else.

`manage.py add_upstream` approves the command that it is given, for this upstream and to the letter.

An entry of MCPHUB_UPSTREAM_COMMANDS is a command line. It is matched word by word; `*` as its last word stands for any
further arguments. So `uvx mcp-server-time` allows this server only, and `uvx *` allows everything that uvx can run.
"""

import shlex
from collections.abc import Sequence
from typing import Final

from tools_app.core.config import config

REST: Final = "*"
NOT_ALLOWED: Final = (
    "The operator of the hub does not allow this command. Allowed command lines are listed in MCPHUB_UPSTREAM_COMMANDS,"
    " and the operator can add others by manage.py add_upstream."
)


def is_allowed(command: Sequence[str]) -> bool:
    """Whether an entry of the list matches a command."""
    return any(_matches(shlex.split(entry), command) for entry in config.MCPHUB_UPSTREAM_COMMANDS)


def _matches(entry: Sequence[str], command: Sequence[str]) -> bool:
    if entry and entry[-1] == REST:
        start = list(entry[:-1])
        return bool(start) and list(command[: len(start)]) == start
    return list(entry) == list(command)
