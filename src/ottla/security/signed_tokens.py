"""Signed tokens of OAuth (RFC 7519): which of them are believed, and the keys that tell.

The keys are those of whoever issues the tokens, at an address or in a file (a JWKS, RFC 7517). They are fetched by a
thread, now and then and when a token names one that is not known yet; that token is refused, and clients come again.
Signatures are the matter of PyJWT, which comes with `ottla[oauth]`.
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
"""Those whose keys can be shown to everybody."""
_MOST_BYTES: Final = 1 << 20
_MOST_SOURCES: Final = 100
_LEAST_PAUSE_S: Final = 1.0
"""Tokens with made-up keys do not make a node ask more often than this."""


class KeySource(NamedTuple):
    """Where keys are, and how often they are looked at."""

    url: str
    tls: Tls = Tls()
    refresh_s: float = 3600.0
    retry_s: float = 0.1
    most_retry_s: float = 10.0
    timeout_s: float = 10.0


class SignedTokens(NamedTuple):
    """Which signed tokens are believed."""

    source: KeySource
    user_claim: str = "sub"
    scope_claim: str = "scope"
    audience: tuple[str, ...] = ()
    """Whom a token must be meant for; without any, it must not say."""
    issuer: str | None = None
    skew_s: float = 30.0

    def check(self, token: str) -> TokenClaims | None:
        """What a token says, if nothing is wrong with it."""
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            claims = self._claims(token, key_set_of(self.source).find(header.get("kid"), header.get("alg")))
        except jwt.PyJWTError as error:
            logger.info("a token was refused: %s", error)
            return None
        user, expires = claims.get(self.user_claim), claims["exp"]
        if not isinstance(user, str) or not user.strip() or not isinstance(expires, int | float):
            return None
        return TokenClaims(user.strip(), round(expires * 1000)) if _are_scopes(claims.get(self.scope_claim)) else None

    def _claims(self, token: str, keys: Sequence[PyJWK]) -> Mapping[str, Any]:
        """What a token says that one of the keys has signed; raises PyJWTError."""
        import jwt

        wrong: jwt.PyJWTError = jwt.InvalidKeyError("there is no key for it")
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
                wrong = error
        raise wrong


def _are_scopes(value: object) -> bool:
    """Whether these are scopes: none of them empty, none there twice. What they allow is nobody's matter here."""
    if not isinstance(value, str | list):
        return True
    given = [value] if isinstance(value, str) else value
    names = [each.strip() for each in given if isinstance(each, str)]
    return len(names) == len(given) == len({*names}) and all(names)


@lru_cache(maxsize=_MOST_SOURCES)
def key_set_of(source: KeySource) -> KeySet:
    """The keys of a source: those of all listeners that name it."""
    return KeySet(source)


class KeySet:
    """The keys that tokens are checked with, as they were last found."""

    def __init__(self, source: KeySource) -> None:
        self._source = source
        self._found: list[Mapping[str, Any]] = []
        self._made: dict[tuple[str | None, str], list[PyJWK]] = {}
        self._changed = 0.0
        self._wanted = threading.Event()
        self._file = file_from_url(source.url)
        if self._file is None:
            threading.Thread(target=self._follow, name="ottla-keys", daemon=True).start()

    def find(self, key_id: str | None, algorithm: object) -> Sequence[PyJWK]:
        """The keys that a token may be signed with, by its header: one, or where it names none, all that would do."""
        if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
            return ()
        if self._file is not None:
            self._read(self._file)
        found = self._made.get((key_id, algorithm))
        if found is None:
            found = self._make(key_id, algorithm)
            if found:
                self._made[key_id, algorithm] = found
            else:
                self._wanted.set()
        return found

    def _make(self, key_id: str | None, algorithm: str) -> list[PyJWK]:
        import jwt

        fitting = []
        for each in self._found:
            if (key_id is not None and each.get("kid") != key_id) or each.get("use", "sig") != "sig":
                continue
            try:
                fitting.append(jwt.PyJWK(dict(each), algorithm))
            except jwt.PyJWTError:
                continue  # a key of another kind
        return fitting

    def _take(self, text: str | bytes) -> None:
        found = json.loads(text)
        keys = found.get("keys") if isinstance(found, dict) else None
        if not isinstance(keys, list) or not all(isinstance(each, dict) for each in keys):
            raise ValueError("it is no JWKS: it has no list of keys")
        self._found = keys
        self._made = {}

    def _read(self, file: Path) -> None:
        try:
            changed = file.stat().st_mtime
            if changed != self._changed:
                self._take(file.read_bytes()[:_MOST_BYTES])
                self._changed = changed
        except (OSError, ValueError) as error:
            logger.error("the keys in %s cannot be read, and stay as they were: %s", file, error)

    def _follow(self) -> None:
        from http.client import HTTPException  # takes as long as much else that a node loads when it starts

        pause_s = self._source.retry_s
        while True:
            began = time.monotonic()
            try:
                self._take(_fetched(self._source))
                pause_s = self._source.retry_s
                self._wanted.clear()
                self._wanted.wait(self._source.refresh_s)
                time.sleep(max(0.0, began + _LEAST_PAUSE_S - time.monotonic()))
            except (OSError, ValueError, HTTPException, InvalidSecurity) as error:
                logger.warning("%s gives no keys, which stay as they were: %s", self._source.url, error)
                time.sleep(pause_s)
                pause_s = min(pause_s * 2, self._source.most_retry_s)


def _fetched(source: KeySource) -> bytes:
    import urllib.request

    context = client_context(source.tls) if source.url.startswith("https:") else None
    with urllib.request.urlopen(source.url, timeout=source.timeout_s, context=context) as answer:  # noqa: S310 - checked
        return bytes(answer.read(_MOST_BYTES))
