"""Policies of Python that fail: the node is not taken along, and nothing gets past them."""

import asyncio
import sys
import threading

import pytest

from ottla.metadata.controller.view import NewTopic
from ottla.plugins import policies
from ottla.plugins.policies import PluginThread, PythonPolicy
from ottla.protocol.errors import PolicyViolation, UnknownServerError


class Moody:
    """Hangs, or raises SystemExit."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def validate(self, request: NewTopic) -> None:
        if request.name == "hangs":
            self.release.wait(30)
        if request.name == "ends":
            sys.exit(3)


def test_a_policy_that_hangs_or_exits_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    moody, thread = Moody(), PluginThread("policies of a test")
    policy = PythonPolicy("tests:Moody", moody, thread)

    async def judge() -> None:
        fine, ends = await policy.judge([NewTopic(name, 1, 1, None, {}) for name in ("fine", "ends")])
        assert fine is None
        assert isinstance(ends, UnknownServerError)
        monkeypatch.setattr(policies, "TIMEOUT_S", 0.2)
        for name in ("hangs", "waits behind it"):
            (verdict,) = await policy.judge([NewTopic(name, 1, 1, None, {})])
            assert isinstance(verdict, PolicyViolation)
            assert "tests:Moody could not decide: it did not answer" in verdict.message
        moody.release.set()
        monkeypatch.setattr(policies, "TIMEOUT_S", 20.0)
        assert await policy.judge([NewTopic("fine", 1, 1, None, {})]) == [None]

    asyncio.run(judge())
    thread.stop()
