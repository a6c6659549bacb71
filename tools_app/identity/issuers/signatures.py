"""The algorithms of signatures of issuers and clients.

Pinned: none with a shared secret, and none without a signature. Ed25519 is the name of EdDSA with that curve since RFC
9864; both names are accepted, because many issuers still use the older one.
"""

from typing import ClassVar, Final

from joserfc.jwa import EdDSAAlgorithm, JWSAlgModel
from joserfc.jws import JWSRegistry

ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA", "Ed25519")


class _EdDSA(EdDSAAlgorithm):
    """EdDSA without the library's warning that the name is deprecated: that is for those who sign."""

    security_warning = None  # type: ignore[assignment] # a text in the base class


class _Registry(JWSRegistry):
    algorithms: ClassVar[dict[str, JWSAlgModel]] = {**JWSRegistry.algorithms, "EdDSA": _EdDSA()}  # type: ignore[misc]


REGISTRY: Final = _Registry(algorithms=ALGORITHMS)
