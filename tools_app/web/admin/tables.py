"""Filters of templates with tables: labels of the cells, which phones show beside each value."""

import re
from collections.abc import Sequence
from typing import Any, Final

from django.template import Library
from django.utils.safestring import SafeString, mark_safe

# The library of filters `tables` of the templates.
register = Library()

LABEL: Final = re.compile(r'data-label="[a-z]')


@register.filter
def sentence_labels(markup: SafeString) -> SafeString:
    """Return a list with its labels as its column heads are written: unfold leaves them in lower case."""
    # No value matches: a quotation mark in it is escaped.
    return mark_safe(LABEL.sub(lambda label: label[0][:-1] + label[0][-1].upper(), markup))  # noqa: S308


@register.filter
def at(values: Sequence[Any], index: int) -> Any:
    """Return the value at an index."""
    return values[index]
