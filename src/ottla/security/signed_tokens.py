"""Validates signed OAuth tokens (RFC 7519) with the issuer's keys.

The keys are at a URL or in a file (a JWKS, RFC 7517). A thread fetches them periodically, and when a token names an
unknown key; that token is rejected, and the client retries. PyJWT, which comes with `ottla[oauth]`, verifies the
signatures.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.security.errors import InvalidSecurity
from ottla.security.oauth_tokens import file_from_url
from ottla.security.sasl_server import TokenClaims
from ottla.security.tls import Tls, client_context

if TYPE_CHECKING:
    from jwt import PyJWK

logger = logging.getLogger(__name__)

_ALGORITHMS: Final = frozenset(
    ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
)
"""The algorithms with public keys."""
_MAX_BYTES: Final = 1 << 20
_MAX_SOURCES: Final = 100
_MIN_PAUSE_S: Final = 1.0
"""The minimum between two fetches, so that tokens with invented key ids cannot cause more."""


class KeySource(NamedTuple):
    """The source of the keys, and how often they are fetched."""

    url: str
    tls: Tls = Tls()
    refresh_s: float = 3600.0
    retry_s: float = 0.1
    max_retry_s: float = 10.0
    timeout_s: float = 10.0


class SignedTokens(NamedTuple):
    """The rules for signed tokens."""

    source: KeySource
    user_claim: str = "sub"
    scope_claim: str = "scope"
    audience: tuple[str, ...] = ()
    """The allowed audiences. If there are none, a token must not have an audience."""
    issuer: str | None = None
    skew_s: float = 30.0

    def check(self, token: str) -> TokenClaims | None:
        """Return the claims of a valid token, else None."""
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            claims = self._claims(token, key_set_of(self.source).find(header.get("kid"), header.get("alg")))
        except jwt.PyJWTError as error:
            logger.info("rejected a token: %s", error)
            return None
        user, expires = claims.get(self.user_claim), claims["exp"]
        if not isinstance(user, str) or not user.strip() or not isinstance(expires, int | float):
            return None
        return TokenClaims(user.strip(), round(expires * 1000)) if _are_scopes(claims.get(self.scope_claim)) else None

    def _claims(self, token: str, keys: Sequence[PyJWK]) -> Mapping[str, Any]:
        """Return the claims of a token that one of the keys has signed. Raise PyJWTError."""
        import jwt

        failure: jwt.PyJWTError = jwt.InvalidKeyError("no key matches its header")
        for key in keys:
            try:
                return jwt.decode(
                    token,
                    key,
                    algorithms=sorted(_ALGORITHMS),
                    audience=self.audience or None,
                    issuer=self.issuer,
                    leeway=self.skew_s,
                    options={"require": ["exp", "iat"], "verify_iat": False, "verify_sub": False, "verify_jti": False},
                )
            except jwt.InvalidSignatureError as error:
                failure = error
        raise failure


def _are_scopes(value: object) -> bool:
    """Return whether these are valid scopes, without empty or repeated ones. Their meaning is not checked."""
    if not isinstance(value, str | list):
        return True
    scopes = [value] if isinstance(value, str) else value
    names = [scope.strip() for scope in scopes if isinstance(scope, str)]
    return len(names) == len(scopes) == len({*names}) and all(names)


@lru_cache(maxsize=_MAX_SOURCES)
def key_set_of(source: KeySource) -> KeySet:
    """Return the key set of a source, which all listeners that name it share."""
    return KeySet(source)


class KeySet:
    """The keys of a source, as last fetched."""

    def __init__(self, source: KeySource) -> None:
        self._source = source
        self._keys: list[Mapping[str, Any]] = []
        self._by_header: dict[tuple[str | None, str], list[PyJWK]] = {}
        self._modified = 0.0
        self._missing = threading.Event()
        self._file = file_from_url(source.url)
        if self._file is None:
            threading.Thread(target=self._refresh, name="ottla-keys", daemon=True).start()

    def find(self, key_id: str | None, algorithm: object) -> Sequence[PyJWK]:
        """Return the keys that match a token's header: the one that it names, or all suitable ones if it names none."""
        if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
            return ()
        if self._file is not None:
            self._reload_file(self._file)
        matching = self._by_header.get((key_id, algorithm))
        if matching is None:
            matching = self._match_keys(key_id, algorithm)
            if matching:
                self._by_header[key_id, algorithm] = matching
            else:
                self._missing.set()
        return matching

    def _match_keys(self, key_id: str | None, algorithm: str) -> list[PyJWK]:
        import jwt

        matching = []
        for key in self._keys:
            if (key_id is not None and key.get("kid") != key_id) or key.get("use", "sig") != "sig":
                continue
            try:
                matching.append(jwt.PyJWK(dict(key), algorithm))
            except jwt.PyJWTError:
                continue  # a key for another algorithm
        return matching

    def _load(self, text: str | bytes) -> None:
        jwks = json.loads(text)
        keys = jwks.get("keys") if isinstance(jwks, dict) else None
        if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
            raise ValueError("it is not a JWKS: it has no list of keys")
        self._keys = keys
        self._by_header = {}

    def _reload_file(self, file: Path) -> None:
        try:
            modified = file.stat().st_mtime
            if modified != self._modified:
                self._load(file.read_bytes()[:_MAX_BYTES])
                self._modified = modified
        except (OSError, ValueError) as error:
            logger.error("cannot read the keys in %s, keeping the current ones: %s", file, error)

    def _refresh(self) -> None:
        from http.client import HTTPException  # slow to import

        pause_s = self._source.retry_s
        while True:
            began = time.monotonic()
            try:
                self._load(_fetch(self._source))
                pause_s = self._source.retry_s
                self._missing.clear()
                self._missing.wait(self._source.refresh_s)
                time.sleep(max(0.0, began + _MIN_PAUSE_S - time.monotonic()))
            except (OSError, ValueError, HTTPException, InvalidSecurity) as error:
                logger.warning("cannot fetch keys from %s, keeping the current ones: %s", self._source.url, error)
                time.sleep(pause_s)
                pause_s = min(pause_s * 2, self._source.max_retry_s)


def _fetch(source: KeySource) -> bytes:
    import urllib.request

    context = client_context(source.tls) if source.url.startswith("https:") else None
    with urllib.request.urlopen(source.url, timeout=source.timeout_s, context=context) as answer:  # noqa: S310 - checked
        return bytes(answer.read(_MAX_BYTES))
