"""Bounds on what a directory sends (SCIM), apart from the libraries that read it."""

from typing import Final

# Requests of a directory in a second; of those that change something, one at a time.
MAX_REQUESTS: Final = 25
# Levels of a body; resources have three.
MAX_DEPTH: Final = 10
# Characters of a filter, of the list of attributes that an answer has, and of the path of an operation.
MAX_FILTER: Final = 500
MAX_ATTRIBUTES: Final = 1000
MAX_PATH: Final = 300
# A group's may name one member each.
MAX_OPERATIONS: Final = 1000
MAX_USER_OPERATIONS: Final = 50
# Resources of one answer.
DEFAULT_PAGE: Final = 100
MAX_PAGE: Final = 200
# Members of groups in one answer, and groups of users: a page that would have more is shorter.
MAX_PAGE_MEMBERS: Final = 5000
# Bytes of the attributes of a user that have no column of their own, as JSON.
MAX_RESOURCE_BYTES: Final = 8 * 1024
