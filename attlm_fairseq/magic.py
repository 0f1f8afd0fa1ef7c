"""The first bytes of files, by which their kind is told."""

from __future__ import annotations

TORCH = (b"PK", b"\x80")  # zip files and older pickles
KENLM = b"mmap lm "  # binaries of every version
KENLM_BINARY = KENLM + b"http://kheafield.com/code format version"  # those that KenLM reads
GZIP, BZIP2, XZ = b"\x1f\x8b", b"BZh", b"\xfd7zXZ"
