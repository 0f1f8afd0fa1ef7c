"""Small whole files from which several kinds of input are made."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

from lm_files import write_arpa

from attlm_fairseq.scoring.ngrams.kenlm_programs import find_program

WORDS = ["the", "cat", "sat", "on", "mat", "dog", "a", "ran"]

TABLE = """\
# attlm corrections 1
# lm = lm.arpa
# language = en
# lists = 40
kind\tsource\ttarget\tln_p\tcount\texamples
phrase\tmad\tmat\t-0.105\t14.2\ton the mad
phrase\t<s> dock\t<s> dog\t-0.5\t3
keep\tcat\tcat\t-0.012\t2731.4
number\t3\tpairs\t-0.437\t42.4
letter\ty\ty\t-0.1
letter\ty\ti\t-4.1
"""

QUESTIONS = """\
1 the cat sat on the mat
2 a dog ran
3 the XXXXX sat on a mat\tcat\t\tdog|cat|mat

1 a dog ran
2 the XXXXX ran on the mat .\tdog\t\tdog|cat
"""


@cache
def ngram_model(kind: str) -> bytes:
    place = Path(os.environ["FUZZ_SHARED"])
    arpa = write_arpa(place / f"{os.getpid()}.arpa", WORDS)
    if kind == "arpa":
        return arpa.read_bytes()
    binary = arpa.with_suffix(f".{kind}")
    subprocess.run([find_program("build_binary"), kind, arpa, binary], check=True, capture_output=True)
    return binary.read_bytes()
