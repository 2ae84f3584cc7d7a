"""Mutated frames: what a broken or hostile peer might send."""

from collections.abc import Iterator
from random import Random

LARGE = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f")
NASTY = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\x80" * 6, *LARGE)


def mutations(frame: bytes, random: Random, count: int) -> Iterator[bytes]:
    """`count` frames near `frame`: bytes changed, cut out, doubled, overwritten with lengths that lie."""
    for _ in range(count):
        made = bytearray(frame)
        for _ in range(random.choice((1, 1, 2, 5))):
            at = random.randrange(len(made) + 1)
            match random.randrange(5):
                case 0 if at < len(made):
                    made[at] = random.randrange(256)
                case 1:
                    nasty = random.choice(NASTY)
                    made[at : at + len(nasty)] = nasty
                case 2:
                    del made[at : at + random.choice((1, 4, 50))]
                case 3:
                    made[at:at] = random.randbytes(random.choice((1, 4, 20)))
                case _:
                    made[at:at] = made[at : at + 40]
        yield bytes(made)
