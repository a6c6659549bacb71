"""Attacks on a hub under Daphne."""

from tests.abuse.under_attack import *  # noqa: F403 - the tests of every server

SERVER = "daphne"
