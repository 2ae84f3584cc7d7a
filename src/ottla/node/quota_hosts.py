"""Hosts by name: a quota of connections may name one instead of its address."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable

from ottla.metadata.controller.quotas import IP
from ottla.metadata.image.values import QuotaEntity
from ottla.protocol.messages.rpc.alter_client_quotas import AlterClientQuotasRequest


def host_of(entity: QuotaEntity) -> str | None:
    """The host that a quota is for, by name or address; None if it is for anybody else."""
    return dict(entity).get(IP)


def spelled_out(host: str) -> str | None:
    """An address in the one way in which a connection's is written; None for a name."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None


async def address_of(host: str) -> str | None:
    """The address of a host, by which its connections are known; None if nobody knows it."""
    address = spelled_out(host)
    if address is not None:
        return address
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    return str(min(found, key=lambda each: each[0] != socket.AF_INET)[4][0])


async def unknown_hosts(request: AlterClientQuotasRequest) -> frozenset[str]:
    """The hosts that a request names and that nobody knows. One after the other: each may hold up a thread for long."""
    return frozenset([host for host in _named(request) if await address_of(host) is None])


def _named(request: AlterClientQuotasRequest) -> Iterable[str]:
    parts = (part for entry in request.entries for part in entry.entity)
    return dict.fromkeys(part.entity_name for part in parts if part.entity_type == IP and part.entity_name)
