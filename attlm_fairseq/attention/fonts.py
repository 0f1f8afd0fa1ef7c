"""Which installed fonts can draw a text: matplotlib's own has no Chinese, and silently draws boxes instead."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache

PREFERRED = ("noto", "source", "wqy", "wenquanyi", "pingfang", "msyh", "droid", "unifont")  # made for reading, many scripts
SHAPING_SINCE = (3, 11)  # matplotlib: letters that join, stack or run from right to left


def fonts_for(texts: Iterable[str]) -> tuple[list[str], str]:
    """The font families to draw the texts with, matplotlib's own first, and the characters that no installed font has, sorted.

    The folders of fonts are searched only where matplotlib's own font is not enough, and anew: a font installed a moment ago is found.
    """
    from matplotlib import font_manager

    needed = {character for text in texts for character in text if not character.isspace()}
    own = font_manager.findfont("DejaVu Sans")
    families = ["DejaVu Sans"]
    missing = needed - characters_of(own)
    if missing:
        for path in sorted(font_manager.findSystemFonts(), key=preference):
            drawable = missing & characters_of(path)
            if drawable:
                font_manager.fontManager.addfont(path)
                families.append(font_manager.get_font(path).family_name)
                missing -= drawable
            if not missing:
                break
    return families, "".join(sorted(missing))


def unshaped(texts: Iterable[str], missing: str) -> str:
    """The characters, but for the missing ones, that this matplotlib draws one by one from left to right where they should not; sorted."""
    import matplotlib

    if matplotlib.__version_info__[:2] >= SHAPING_SINCE:
        return ""
    return "".join(sorted({character for text in texts for character in text if needs_shaping(character)}.difference(missing)))


def needs_shaping(character: str) -> bool:
    """Whether it is written from right to left, or of a script of South or South-East Asia."""
    indic = "\u0900" <= character <= "\u109f" or "\u1780" <= character <= "\u17ff"  # Devanagari to Thai, Tibetan and Burmese; Khmer
    return indic or unicodedata.bidirectional(character) in ("R", "AL")


def preference(path: str) -> tuple[int, int, str]:
    """Upright regular fonts of well-known families first; then by name, so that the choice is always the same."""
    name = path.replace("\\", "/").rsplit("/", 1)[-1].lower()
    family = next((place for place, part in enumerate(PREFERRED) if part in name), len(PREFERRED))
    return (any(style in name for style in ("bold", "italic", "oblique", "light", "thin", "black")), family, path)


@lru_cache(maxsize=4096)
def characters_of(path: str) -> frozenset[str]:
    """What a font file has glyphs for; nothing if it is not a font that matplotlib can read."""
    from matplotlib.font_manager import get_font

    try:
        return frozenset(map(chr, get_font(path).get_charmap()))
    except (RuntimeError, OSError):
        return frozenset()
