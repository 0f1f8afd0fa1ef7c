"""Which installed fonts can draw a text: matplotlib's own has no Chinese, and silently draws boxes instead."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

PREFERRED = ("noto", "source", "wqy", "wenquanyi", "pingfang", "msyh", "droid", "unifont")  # made for reading, many scripts


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
