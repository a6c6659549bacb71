"""Ringing doorbells: the only place that crosses from synchronous code to the channel layer.

A doorbell says "look at the store" about one topic (`call:<id>`, `catalog:<tenant>`, `cancel:<call>`). It may be
lost, so nothing depends on it: whoever waits also polls.
"""


def ring(*topics: str) -> None:
    """Tell every process to look at the store about `topics`. Returns at once, from any thread."""
