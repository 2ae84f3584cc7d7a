"""TLS as Kafka's settings describe it, as contexts of Python's `ssl`.

Keys and certificates are PEM text by the time they come to the context; `keystores.py` makes that of key stores. Python
takes a certificate chain from files only, so the text goes through one that lives in memory.
"""

import functools
import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from ottla.config.settings.values import Password
from ottla.security.errors import InvalidSecurity
from ottla.security.keystores import Store, identity_pem, trusted_pem

_VERSIONS: Final = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
PROTOCOLS: Final = tuple(_VERSIONS)
_CLIENT_AUTH: Final = {"required": ssl.CERT_REQUIRED, "requested": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}


class Tls(NamedTuple):
    """How connections are encrypted, and who is believed. Plain values: it may travel to other processes."""

    identity: Store | None = None
    """The own key and certificates."""
    key_password: Password | None = None
    trusted: Store | None = None
    """Whose certificates are believed; None: those whom the system believes."""
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ciphers: tuple[str, ...] = ()
    checks_host: bool = True


@functools.lru_cache(maxsize=32)
def client_context(tls: Tls) -> ssl.SSLContext:
    """What a client's connections use; made once, so that sessions can be resumed. Raises InvalidSecurity."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, tls)
    if tls.trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _trust(context, tls.trusted)
    context.check_hostname = tls.checks_host
    if tls.identity is not None:
        _identify(context, tls.identity, tls.key_password)
    return context


def server_context(tls: Tls, client_auth: str) -> ssl.SSLContext:
    """What a listener's connections use; `client_auth` says whether clients show certificates: `required`, `requested`
    or `none`. Raises InvalidSecurity."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, tls)
    context.options |= ssl.OP_NO_RENEGOTIATION
    if tls.identity is None:
        raise InvalidSecurity("ssl.keystore.location", "is missing: the key and the certificate of this node")
    _identify(context, tls.identity, tls.key_password)
    context.verify_mode = _CLIENT_AUTH[client_auth]
    if context.verify_mode != ssl.CERT_NONE:
        if tls.trusted is None:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        else:
            _trust(context, tls.trusted)
    return context


def openssl_cipher(name: str) -> str:
    """OpenSSL's name of a cipher suite that Java calls by its registered one (TLS_ECDHE_RSA_WITH_…)."""
    exchange, found, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not found:
        return name
    cipher = re.sub(r"AES_(128|256)", r"AES\1", cipher).replace("_CBC", "").replace("POLY1305_SHA256", "POLY1305")
    exchange = "" if exchange == "RSA" else exchange + "_"
    return (exchange + cipher).replace("_", "-")


def _restrict(context: ssl.SSLContext, tls: Tls) -> None:
    versions = sorted(_VERSIONS[name] for name in tls.protocols)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    # Suites of TLS 1.3 have no key exchange in their names, and Python lets nobody choose among them.
    chosen = [openssl_cipher(name) for name in tls.ciphers if not name.startswith("TLS_") or "_WITH_" in name]
    if chosen:
        try:
            context.set_ciphers(":".join(chosen))
        except ssl.SSLError:
            raise InvalidSecurity("ssl.cipher.suites", f"none of {', '.join(tls.ciphers)} is known here") from None


def _trust(context: ssl.SSLContext, store: Store) -> None:
    try:
        context.load_verify_locations(cadata=trusted_pem(store))
    except ssl.SSLError as error:
        raise InvalidSecurity(store.setting, f"its certificates cannot be used: {error.reason or error}") from error


def _identify(context: ssl.SSLContext, store: Store, key_password: Password | None) -> None:
    text, password = identity_pem(store, key_password)
    with _as_file(text) as path:
        try:
            context.load_cert_chain(path, password=password or "")
        except ssl.SSLError as error:
            why = "the key's password is wrong, or key and certificate do not belong together"
            raise InvalidSecurity(store.setting, f"its key cannot be used ({error.reason or error}): {why}") from error


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """A path under which the text can be read meanwhile; on Linux it never comes to a disk."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("ottla-key")
        try:
            with os.fdopen(os.dup(number), "w") as file:
                file.write(text)
            yield f"/proc/self/fd/{number}"
        finally:
            os.close(number)
    else:
        import tempfile

        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # readable by its owner alone
            file.write(text)
            file.flush()
            yield file.name
