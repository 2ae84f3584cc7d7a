"""Tokens for OAUTHBEARER: from a token endpoint by client credentials, from a file, or made up and not signed.

The last is Kafka's default, for tests and trusted networks (RFC 7515 with algorithm none). A token is used for as long
as four fifths of its life; its `exp` claim says how long that is.
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

_KEPT_SHARE: Final = 0.8
_MOST_BYTES: Final = 1 << 20
_DEFAULT_LIFE_S: Final = 300.0
_token = re.compile(r"[A-Za-z0-9\-._~+/]+=*").fullmatch


class TokenSource(NamedTuple):
    """Where tokens come from. Without a URL they are made up of the claims."""

    url: str | None = None
    client_id: str = ""
    client_secret: Password = Password("")
    scope: str | None = None
    tls: Tls = Tls()
    timeout_s: float = 10.0
    encode_header: bool = False
    """Whether id and secret are encoded as in URLs before they go into the header (KIP-1139's way out)."""
    claims: tuple[tuple[str, str | float | tuple[str, ...]], ...] = ()
    life_s: float = 3600.0


_kept: dict[TokenSource, tuple[str, float]] = {}


def fetch_token(source: TokenSource) -> str:
    """A token that is good for a while yet; waits for whoever issues it. Raises SaslAuthenticationFailed."""
    token, until = _kept.get(source, ("", 0.0))
    if time.time() >= until:
        token = _issued(source)
        _kept[source] = token, time.time() + _KEPT_SHARE * _life_s(token)
    return token


def _issued(source: TokenSource) -> str:
    if source.url is None:
        return _made_up(source)
    path = file_from_url(source.url)
    if path is not None:
        try:
            return _checked(path.read_text().strip(), str(path))
        except OSError as error:
            raise SaslAuthenticationFailed(f"the token in {path} cannot be read: {error.strerror}") from error
    return _asked_for(source, source.url)


def file_from_url(url: str) -> Path | None:
    """The file that a URL means, if it means one."""
    if not url.startswith("file:"):
        return None
    from urllib.parse import unquote, urlsplit

    return Path(unquote(urlsplit(url).path))


def _asked_for(source: TokenSource, url: str) -> str:
    # Loaded by those alone who need it: it would be a good part of what a node takes to start.
    import urllib.error
    import urllib.parse
    import urllib.request

    pair = (source.client_id, source.client_secret.value)
    name, secret = (urllib.parse.quote_plus(each) for each in pair) if source.encode_header else pair
    form = {"grant_type": "client_credentials"} | ({"scope": source.scope} if source.scope else {})
    request = urllib.request.Request(  # noqa: S310 - the operator's own address, whose scheme was checked
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
            found = json.loads(answer.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
        said = error.read(500).decode(errors="replace").strip()
        raise SaslAuthenticationFailed(f"{url} gives no token: {error.code} {error.reason}: {said}") from error
    except (OSError, ValueError) as error:
        raise SaslAuthenticationFailed(f"{url} gives no token: {error}") from error
    token = found.get("access_token") or found.get("id_token") if isinstance(found, dict) else None
    if not isinstance(token, str):
        raise SaslAuthenticationFailed(f"{url} gives no token: there is no access_token in its answer")
    return _checked(token, url)


def _checked(token: str, origin: str) -> str:
    if not _token(token):
        raise SaslAuthenticationFailed(f"{origin} holds no token: it is empty, or has characters that none has")
    return token


def _made_up(source: TokenSource) -> str:
    now = time.time()
    claims = {"iat": now, "exp": now + source.life_s, **dict(source.claims)}
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def _encoded(part: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def _life_s(token: str) -> float:
    """How long a token has to live, by what it says of itself; some minutes if it says nothing that can be read."""
    parts = token.split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"]) - time.time()
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        return _DEFAULT_LIFE_S
