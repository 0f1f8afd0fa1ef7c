"""Damage to the content of a file, drawn from a seeded generator."""

from __future__ import annotations

from random import Random

PIECES = [
    b"", b"\0", b"\n", b"\r", b"\r\n", b"\t", b" ", b"  ", b"\xff", b"\xef\xbb\xbf", b"|||", b" ||| ", b"=", b":", b",", b"-", b"+", b"#",
    b"nan", b"inf", b"-inf", b"1e999", b"-0", b"0", b"1", b"99999999999999999999", b"1_0",
    b"9" * 400, b" " * 3000, b"[" * 3000, b"\xd9\xa1",
    b"{", b"}", b"[", b"]", b'"', b"'", b"\\", b"\\ud800", b"null", b"true", b"<s>", b"</s>", b"<unk>", b"<pad>", b"@@", b"\xe2\x96\x81",
    b"\xe2\x80\xa8", b"\xc2\xa0", b"H-0\t", b"P-0\t", b"utt-1 ", b"ngram 2=0", b"\\end\\", b"\\2-grams:", b"..", b"/", b"true", b"%s",
]  # fmt: skip


def damaged(random: Random, content: bytes) -> bytes:
    """The content cut short, or with some of its bytes changed, repeated, exchanged or left out."""
    data = bytearray(content)
    for _ in range(random.choice([1, 1, 1, 2, 3, 8])):
        kind = random.randrange(8)
        start = random.randrange(len(data) + 1)
        end = min(len(data), start + random.choice([0, 1, 2, 4, 8, 30, 200]))
        if kind == 0:
            del data[start:]
        elif kind == 1:
            data[start:end] = random.randbytes(end - start)
        elif kind == 2 and data:
            data[start % len(data)] ^= 1 << random.randrange(8)
        elif kind == 3:
            data[start:end] = data[start:end] * 2
        elif kind == 4:
            other = random.randrange(len(data) + 1)
            data[start:start] = data[other : other + end - start]
        elif kind == 5:
            data[start:end] = b""
        else:
            data[start:end] = random.choice(PIECES)
    return bytes(data)


def other_lines(random: Random, content: bytes) -> bytes:
    """Lines exchanged, repeated or left out."""
    lines = content.splitlines(keepends=True)
    for _ in range(random.randint(1, 3)):
        if lines:
            place = random.randrange(len(lines))
            kind = random.randrange(3)
            if kind == 0:
                lines.insert(random.randrange(len(lines) + 1), lines[place])
            elif kind == 1:
                del lines[place]
            else:
                other = random.randrange(len(lines))
                lines[place], lines[other] = lines[other], lines[place]
    return b"".join(lines)


def spoiled(random: Random, content: bytes) -> bytes:
    """One or the other, or both."""
    if random.random() < 0.4:
        content = other_lines(random, content)
    return damaged(random, content) if random.random() < 0.9 else content
