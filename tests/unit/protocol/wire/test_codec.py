"""The generated codecs: what they share, and when they are created."""

import pytest

from ottla.protocol.wire.codec import decode, encode, reader_of, writer_of
from ottla.protocol.wire.declare import since, stored, struct
from ottla.protocol.wire.types import Int32


@struct
class Left:
    number: Int32 = since("0+", default=1)


@struct
class Right:
    text: str = since("0+", default="right")


@struct
class HoldsLeft:
    held: Left = since("1+", factory=Left)


@struct
class HoldsRight:
    held: Right = since("1+", factory=Right)


@stored(versions="0-1", flexible="1+")
class Both:
    left: HoldsLeft = since("0+", factory=HoldsLeft)
    right: HoldsRight = since("0+", factory=HoldsRight)
    count: Int32 = since("0+", default=0)


def test_equal_field_names_in_two_structs_keep_their_defaults() -> None:
    read = decode(Both, 0, encode(Both(), 0))
    assert read.left.held == Left()
    assert read.right.held == Right()


def test_a_codec_is_created_once() -> None:
    assert reader_of(Both, 1) is reader_of(Both, 1)
    assert writer_of(Both, 1) is writer_of(Both, 1)
    assert reader_of(Both, 0) is not reader_of(Both, 1)


@struct
class Sharing:
    items: list[Left] | None = since("0+", factory=list, shared=True)
    after: Int32 = since("0+", default=0)


@stored(versions="0-1", flexible="1+")
class Neighbours:
    structs: list[Sharing] = since("0+", factory=list)


@pytest.mark.parametrize("version", [0, 1])
def test_a_shared_list_is_written_for_each_struct(version: int) -> None:
    one, other = [Left(), Left()], [Left()]
    lists = [None, None, one, one, other, one, list(one), [], [], None]
    message = Neighbours(structs=[Sharing(items=items, after=number) for number, items in enumerate(lists)])
    assert decode(Neighbours, version, memoryview(encode(message, version))) == message
