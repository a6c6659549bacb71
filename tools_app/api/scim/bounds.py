"""Bounds on what a directory sends (SCIM), apart from the libraries that read it."""

from typing import Final

# Requests of an address without a valid token, in a minute.
MAX_FAILURES: Final = 60
# Levels of a body; resources have three.
MAX_DEPTH: Final = 10
# Characters of a filter, of the list of attributes that an answer has, and of the path of an operation.
MAX_FILTER: Final = 500
MAX_ATTRIBUTES: Final = 1000
MAX_PATH: Final = 300
MAX_OPERATIONS: Final = 1000
# Resources of one answer.
DEFAULT_PAGE: Final = 100
MAX_PAGE: Final = 200
# Bytes of the attributes of a user that have no column of their own, as JSON.
MAX_RESOURCE_BYTES: Final = 8 * 1024
