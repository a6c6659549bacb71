#!/usr/bin/env python
"""Django's command line for the hub: `python manage.py up` starts it."""

import sys

OLDEST_PYTHON = (3, 11)


def main() -> None:
    if sys.version_info < OLDEST_PYTHON:
        raise SystemExit(
            f"mcphub needs Python 3.11 or newer; this is Python {sys.version_info[0]}.{sys.version_info[1]}."
        )
    try:
        from mcphub import startup
    except ModuleNotFoundError as missing:
        raise SystemExit(f"{missing.name} is not installed here. Run pip install -e . first.") from missing
    startup.main()


if __name__ == "__main__":
    main()
