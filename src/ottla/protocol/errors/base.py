"""The root of the error tree, and the lookup of a class by its error code.

A code belongs to one class. A class without a code of its own has its parent's code. A family exists to be caught; if
it is raised nevertheless, its code is that of an unknown server error.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # for type checkers only: importing `typing` takes longer than importing this package
    from typing import ClassVar

NONE = 0  # the code of success, which has no class because it is never raised

_by_code: dict[int, type[ApiError]] = {}


class ApiError(Exception):
    """An error that is reported to a client. It becomes an error code once, in the answer for its item."""

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
    """The server met an unexpected error; its log says more."""


def by_code(code: int) -> type[ApiError]:
    """Return the class of an error code. As in Kafka's clients, an unknown code means an unknown server error."""
    assert code != NONE, "success has no error class"
    return _by_code.get(code, UnknownServerError)


def name_of(code: int) -> str:
    """Return Kafka's name of an error code, including success."""
    return "NONE" if code == NONE else by_code(code).name


def first_sentence(error: type[ApiError]) -> str:
    """Return the default message of an error: its first sentence, or its name under python -OO."""
    sentence, dot, _ = (error.__doc__ or error.name).partition(". ")
    return sentence + dot.rstrip()
