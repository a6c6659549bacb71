"""Django's settings, at the price of an attribute: `django.conf.settings` costs a microsecond each time it is asked.

What was asked for once is kept. Django says when a test overrides a setting, and then all is forgotten.
"""

from typing import Any

from django.conf import settings
from django.core.signals import setting_changed


class Config:
    """Settings by their names, as `django.conf.settings` has them."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(settings, name)
        self.__dict__[name] = value
        return value


config = Config()


def _forget(**_changed: Any) -> None:
    config.__dict__.clear()


setting_changed.connect(_forget)
