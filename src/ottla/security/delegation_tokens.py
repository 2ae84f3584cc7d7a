"""Credentials of delegation tokens (KIP-48): an HMAC that only the holder and the cluster know."""

import base64
import hmac
from typing import Final

from ottla.security.scram import MECHANISMS, MIN_ITERATIONS, ScramKeys, salted_password, scram_keys

USER: Final = "User"
"""The only type of principal."""


def token_hmac(secret: str, token_id: str) -> bytes:
    """Return the HMAC of a token, the holder's credential. All nodes share `secret`."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def token_keys(mechanism: str, holder_hmac: bytes, salt: bytes) -> tuple[ScramKeys, int]:
    """Return the SCRAM keys and iterations with which a server verifies a token.

    The SCRAM password is the token's HMAC in base64.
    """
    scram = MECHANISMS[mechanism]
    password = base64.b64encode(holder_hmac).decode()
    return scram_keys(scram, salted_password(scram, password, salt, MIN_ITERATIONS)), MIN_ITERATIONS
