"""The root of the error tree, and the way from a wire code to its class.

Guarantees: a code belongs to one class. A class that gives no code of its own answers with its parent's, so a family,
which is made to be caught, answers as an unknown server error if it is raised all the same.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # type checkers take the branch; at run time `typing` would cost more than all of this package
    from typing import ClassVar

NONE = 0  # the code of an answer without an error; it has no class, as nobody raises it

_by_code: dict[int, type[ApiError]] = {}


class ApiError(Exception):
    """Something a client must be told; becomes a wire code once, where its item is answered."""

    code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False
    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"

    message: str

    def __init_subclass__(cls, *, code: int | None = None, retriable: bool = False, name: str | None = None) -> None:
        super().__init_subclass__()
        if code is None:
            assert name is None, f"{cls.__name__} has a name but no code"
            assert not retriable, f"{cls.__name__} is retriable but has no code"
            return
        assert name is not None, f"{cls.__name__} has a code but no name"
        assert code != NONE, f"{cls.__name__} takes the code of success"
        assert code not in _by_code, f"{cls.__name__} takes the code of {_by_code[code].__name__}"
        cls.code = code
        cls.retriable = retriable
        cls.name = name
        _by_code[code] = cls

    def __init__(self, message: str | None = None) -> None:
        self.message = first_sentence(type(self)) if message is None else message
        super().__init__(self.message)


class UnknownServerError(ApiError, code=-1, name="UNKNOWN_SERVER_ERROR"):
    """The server failed in a way that it did not expect; its log says more."""


def by_code(code: int) -> type[ApiError]:
    """The class of a wire code; a code from the future is an unknown server error, as it is for Kafka's clients."""
    assert code != NONE, "success has no error class"
    return _by_code.get(code, UnknownServerError)


def name_of(code: int) -> str:
    """Kafka's name of a wire code, success included."""
    return "NONE" if code == NONE else by_code(code).name


def first_sentence(error: type[ApiError]) -> str:
    """The message of an error raised without one; its name where docstrings were stripped (python -OO)."""
    sentence, dot, _ = (error.__doc__ or error.name).partition(". ")
    return sentence + dot.rstrip()
