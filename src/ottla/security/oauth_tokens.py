"""Tokens for OAUTHBEARER: from a token endpoint with client credentials, from a file, or unsigned.

Unsigned tokens are Kafka's default, for tests and trusted networks (RFC 7515 with algorithm none). A token is used for
four fifths of its lifetime, which its `exp` claim gives.
"""

import base64
import binascii
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ottla.config.settings.values import Password
from ottla.protocol.errors import SaslAuthenticationFailed
from ottla.security.tls import Tls, client_context

_CACHED_SHARE: Final = 0.8
_MAX_BYTES: Final = 1 << 20
_DEFAULT_LIFETIME_S: Final = 300.0
_token = re.compile(r"[A-Za-z0-9\-._~+/]+=*").fullmatch


class TokenSource(NamedTuple):
    """The source of tokens. Without a URL, unsigned tokens are created from the claims."""

    url: str | None = None
    client_id: str = ""
    client_secret: Password = Password("")
    scope: str | None = None
    tls: Tls = Tls()
    timeout_s: float = 10.0
    encode_header: bool = False
    """Whether to URL-encode id and secret in the header (KIP-1139)."""
    claims: tuple[tuple[str, str | float | tuple[str, ...]], ...] = ()
    life_s: float = 3600.0


_cache: dict[TokenSource, tuple[str, float]] = {}


def fetch_token(source: TokenSource) -> str:
    """Return a token that is still valid for a while. May wait for the issuer. Raise SaslAuthenticationFailed."""
    token, until = _cache.get(source, ("", 0.0))
    if time.time() >= until:
        token = _request_token(source)
        _cache[source] = token, time.time() + _CACHED_SHARE * _lifetime_s(token)
    return token


def _request_token(source: TokenSource) -> str:
    if source.url is None:
        return _unsigned_token(source)
    path = file_from_url(source.url)
    if path is not None:
        try:
            return _check_token(path.read_text().strip(), str(path))
        except OSError as error:
            raise SaslAuthenticationFailed(f"the token file {path} cannot be read: {error.strerror}") from error
    return _request_from_endpoint(source, source.url)


def file_from_url(url: str) -> Path | None:
    """Return the file of a file: URL, or None for another URL."""
    if not url.startswith("file:"):
        return None
    from urllib.parse import unquote, urlsplit

    return Path(unquote(urlsplit(url).path))


def _request_from_endpoint(source: TokenSource, url: str) -> str:
    # Imported on use, because it would add much to the start time of a node.
    import urllib.error
    import urllib.parse
    import urllib.request

    pair = (source.client_id, source.client_secret.value)
    name, secret = (urllib.parse.quote_plus(part) for part in pair) if source.encode_header else pair
    form = {"grant_type": "client_credentials"} | ({"scope": source.scope} if source.scope else {})
    request = urllib.request.Request(  # noqa: S310 - a URL of the operator, whose scheme was checked
        url,
        urllib.parse.urlencode(form).encode(),
        {
            "Accept": "application/json",
            "Authorization": "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode(),
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )
    context = client_context(source.tls) if url.startswith("https:") else None
    try:
        with urllib.request.urlopen(request, timeout=source.timeout_s, context=context) as answer:  # noqa: S310
            response = json.loads(answer.read(_MAX_BYTES))
    except urllib.error.HTTPError as error:
        body = error.read(500).decode(errors="replace").strip()
        raise SaslAuthenticationFailed(f"{url} returned no token: {error.code} {error.reason}: {body}") from error
    except (OSError, ValueError) as error:
        raise SaslAuthenticationFailed(f"{url} returned no token: {error}") from error
    token = response.get("access_token") or response.get("id_token") if isinstance(response, dict) else None
    if not isinstance(token, str):
        raise SaslAuthenticationFailed(f"{url} returned no token: its response has no access_token")
    return _check_token(token, url)


def _check_token(token: str, origin: str) -> str:
    if not _token(token):
        raise SaslAuthenticationFailed(f"{origin} has no valid token: it is empty or has invalid characters")
    return token


def _unsigned_token(source: TokenSource) -> str:
    now = time.time()
    claims = {"iat": now, "exp": now + source.life_s, **dict(source.claims)}
    return f"{_encode_part({'alg': 'none'})}.{_encode_part(claims)}."


def _encode_part(part: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def _lifetime_s(token: str) -> float:
    """Return the lifetime of a token from its `exp` claim, or a default if it has none."""
    parts = token.split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"]) - time.time()
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        return _DEFAULT_LIFETIME_S
