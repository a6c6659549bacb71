"""Ranking of texts for the words of a query, by BM25."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

# The usual constants: the saturation of repeated words, and the penalty on long texts.
SATURATION: Final = 1.2
LENGTH_PENALTY: Final = 0.75
# Short words such as "gas" and "dns" have no plural that is recognized.
MAX_UNSTEMMED: Final = 3


def scores(
    weights: Mapping[int, float], lengths: Sequence[float], count: int, average: float
) -> Iterator[tuple[int, float]]:
    """Yield the positions of the texts that have a term, each with what the term adds to its score.

    `weights` are the weights of the term in these texts, `lengths` those of all terms by position. `count` texts with
    lengths of `average` are ranked.
    """
    rarity = math.log(1 + (count - len(weights) + 0.5) / (len(weights) + 0.5))
    for position, weight in weights.items():
        length = 1 - LENGTH_PENALTY + LENGTH_PENALTY * lengths[position] / average
        yield position, rarity * weight * (SATURATION + 1) / (weight + SATURATION * length)


def singular(word: str) -> str:
    """Return a plural in lower case as its singular, other words unchanged."""
    if len(word) <= MAX_UNSTEMMED or word.endswith("ss"):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") else word.removesuffix("s")
