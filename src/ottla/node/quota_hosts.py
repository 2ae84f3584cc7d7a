"""Hosts in connection quotas, which an operator may give by name or by address."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable

from ottla.metadata.controller.quotas import IP
from ottla.metadata.image.values import QuotaEntity
from ottla.protocol.messages.rpc.alter_client_quotas import AlterClientQuotasRequest


def host_of(entity: QuotaEntity) -> str | None:
    """Return the host of an IP quota, as a name or an address; None for any other quota."""
    return dict(entity).get(IP)


def canonical_address(host: str) -> str | None:
    """Return an address in the form in which connections report it; None for a name."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None


async def address_of(host: str) -> str | None:
    """Return the address of a host, preferring IPv4; None if the name does not resolve."""
    address = canonical_address(host)
    if address is not None:
        return address
    try:
        results = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    return str(min(results, key=lambda result: result[0] != socket.AF_INET)[4][0])


async def unknown_hosts(request: AlterClientQuotasRequest) -> frozenset[str]:
    """Return the hosts of a request that do not resolve. Look up one at a time, as each may block a thread for long."""
    return frozenset([host for host in _hosts(request) if await address_of(host) is None])


def _hosts(request: AlterClientQuotasRequest) -> Iterable[str]:
    parts = (part for entry in request.entries for part in entry.entity)
    return dict.fromkeys(part.entity_name for part in parts if part.entity_type == IP and part.entity_name)
