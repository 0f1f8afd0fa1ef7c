"""Find text without spaces between words. A metric that splits words at white space would compare whole clauses."""

from __future__ import annotations

import re
from collections.abc import Iterable

from attlm_fairseq.text.unspaced import CHARACTER, WITHOUT_SPACES

SPLITS_AT_SPACES = ("13a", "intl", "none")  # sacreBLEU's tokenizers that take what stands between spaces for words
MIN_SHARE = 0.5  # of the characters, in scripts that may be written so
MIN_LENGTH = 5.0  # characters between spaces on average: Korean words and words cut by a tokenizer have 1 to 4
MIN_KANA = 0.02  # of the characters: Chinese has none
_KANA = re.compile("[\u3040-\u30ff]")
_HAN = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_OTHERS = re.compile("[\u0e00-\u109f\u1780-\u17ff\uac00-\ud7af]")  # Thai to Burmese, Khmer, Hangul


def takes_clauses(texts: Iterable[str]) -> bool:
    """Return whether white space divides these texts into clauses, and the text step ``characters`` into characters."""
    found = list(texts)
    signs = "".join("".join(text.split()) for text in found)
    return fitting_tokenizer(found) is not None and len(WITHOUT_SPACES.findall(signs)) >= MIN_SHARE * len(signs)


def fitting_tokenizer(texts: Iterable[str]) -> str | None:
    """Return the sacreBLEU tokenizer for texts mostly written without spaces: zh, ja-mecab or char; None for other texts."""
    words = [word for text in texts for word in text.split()]
    joined = "".join(words)
    kana, han, others = (len(pattern.findall(joined)) for pattern in (_KANA, _HAN, _OTHERS))
    letters = kana + han + others
    characters = len(CHARACTER.sub("x", joined))  # of Thai or Burmese text many code points are marks
    if not words or letters < MIN_SHARE * len(joined) or characters < MIN_LENGTH * len(words):
        return None
    if kana >= MIN_KANA * letters:
        return "ja-mecab"
    return "zh" if han >= others else "char"
