"""Write lists as a recogniser with case and punctuation does; and count answers that differ from their lists in nothing else.

usage: cased.py LISTS > CASED          hypotheses with capitals and a sign at the end; references stay as they are
       cased.py --compare LISTS ANSWERS    how many lines of ANSWERS are no hypothesis of their list, and how many of these are one
                                           without case and punctuation
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from attlm_fairseq.text import text_pipeline

NAMES = """
    boston denver dallas pittsburgh atlanta philadelphia baltimore oakland washington milwaukee montreal chicago phoenix newark toronto
    cleveland charlotte detroit houston memphis orlando miami seattle tampa francisco san new york louis st delta united american twa i
    monday tuesday wednesday thursday friday saturday sunday january february march april may june july august september october november
    december"""
QUESTIONS = ("what", "which", "how", "could", "can", "do", "is", "are", "where", "when")


def cased(text: str) -> str:
    """Return the text with capitals, a comma before ``please`` and a sign at the end."""
    names = frozenset(NAMES.split())
    words = [word.capitalize() if word in names else word for word in text.split()]
    if not words:
        return ""
    sign = "?" if words[0] in QUESTIONS else "."
    words[0] = words[0].capitalize()
    return " ".join(words).replace(" please", ", please", 1) + sign


def compare(lists: list[dict], answers: list[str]) -> None:
    new = [(item["input"], answer) for item, answer in zip(lists, answers, strict=True) if answer not in item["input"]]
    words = text_pipeline("remove-punctuation,lowercase").words
    alike = sum(words(answer) in map(words, texts) for texts, answer in new)
    print(f"{len(new)} of {len(lists)} answers are no hypothesis of their list, {alike} of them are one but for case and punctuation")


def main(arguments: list[str]) -> None:
    compares = arguments[:1] == ["--compare"]
    if len(arguments) != (3 if compares else 1):
        sys.exit(__doc__)
    lists = json.loads(Path(arguments[1 if compares else 0]).read_text(encoding="utf-8"))
    if compares:
        compare(lists, Path(arguments[2]).read_text(encoding="utf-8").splitlines())
        return
    for item in lists:
        item["input"] = list(map(cased, item["input"]))
    json.dump(lists, sys.stdout, ensure_ascii=False, indent=1)


if __name__ == "__main__":
    main(sys.argv[1:])
