"""What a delegation token is proved with (KIP-48): an HMAC that only its holder and the cluster can know."""

import base64
import hmac
from typing import Final

from ottla.security.scram import MECHANISMS, MIN_ITERATIONS, ScramKeys, salted_password, scram_keys

USER: Final = "User"
"""The type of principals that there is."""


def token_hmac(secret: str, token_id: str) -> bytes:
    """What the holder of a token was given; `secret` is what all nodes share."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def token_keys(mechanism: str, proof: bytes, salt: bytes) -> tuple[ScramKeys, int]:
    """What checks that a client knows the HMAC of a token, with its number of iterations: the password of SCRAM is its
    text in base64."""
    kind = MECHANISMS[mechanism]
    password = base64.b64encode(proof).decode()
    return scram_keys(kind, salted_password(kind, password, salt, MIN_ITERATIONS)), MIN_ITERATIONS
