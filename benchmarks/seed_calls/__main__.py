"""Entry point of `python -m benchmarks.seed_calls`: the settings come before the models."""

import os
import sys

import django

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mcphub.settings")
    django.setup()
    from benchmarks.seed_calls.command import Command

    Command().run_from_argv(["python -m", "benchmarks.seed_calls", *sys.argv[1:]])
