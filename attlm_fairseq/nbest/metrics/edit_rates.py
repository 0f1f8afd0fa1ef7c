"""Word and character error rates."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from attlm_fairseq.nbest.metrics.metric import ErrorRate, each_text_once, reference_count, require_references
from attlm_fairseq.text.pipeline import NO_STEPS, TextPipeline
from attlm_fairseq.text.unspaced import ZERO_WIDTH_SPACE


class Edits(NamedTuple):
    """What turns a reference into a hypothesis: numbers of tokens substituted, deleted from it and inserted into it."""

    substitutions: int
    deletions: int
    insertions: int
    length: int
    """Number of tokens of the reference."""

    @property
    def errors(self) -> int:
        return self.substitutions + self.deletions + self.insertions


class EditRate(ErrorRate):
    """Levenshtein distance over tokens; substitution, deletion and insertion cost 1 each.

    With several references, the one with the fewest errors counts, with its own length; on a tie the longest.
    A list with an empty reference contributes its insertions and no length.
    """

    unit: str = "tokens"
    """What the tokens are called, in the plural."""

    def __init__(self, *, text: TextPipeline = NO_STEPS, lowercase: bool = False) -> None:
        super().__init__(text)
        self.lowercase = lowercase

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
        from rapidfuzz.distance import Levenshtein

        require_references(references)
        encode = self._encoder()
        targets = [encode(reference) for reference in references]

        def compare(hypothesis: str) -> tuple[int, int]:
            tokens = encode(hypothesis)
            return min(((Levenshtein.distance(tokens, target), len(target)) for target in targets), key=lambda pair: (pair[0], -pair[1]))

        return each_text_once(compare, hypotheses)

    def edits(self, hypothesis: str, references: Sequence[str]) -> Edits:
        """Return the edits of one minimal alignment with the reference that ``statistics`` counts."""
        from rapidfuzz.distance import Levenshtein

        require_references(references)
        encode = self._encoder()
        tokens, targets = encode(hypothesis), [encode(reference) for reference in references]
        nearest = min(targets, key=lambda target: (Levenshtein.distance(tokens, target), -len(target)))
        counts = Counter(edit.tag for edit in Levenshtein.editops(nearest, tokens))
        return Edits(counts["replace"], counts["delete"], counts["insert"], len(nearest))

    def distances(self, texts: Sequence[str]) -> np.ndarray:
        """Return the number of edits between each two of the texts, (n, n) float64."""
        from rapidfuzz.distance import Levenshtein
        from rapidfuzz.process import cdist

        encoded = list(map(self._encoder(), texts))
        return cdist(encoded, encoded, scorer=Levenshtein.distance, dtype=np.float64)

    def _encoder(self) -> Callable[[str], str]:
        """Return a function that encodes a text as one character per token: rapidfuzz compares strings exactly, but lists by hash."""
        alphabet: dict[str, str] = {}

        def encode(text: str) -> str:
            text = self.prepared(text)
            tokens = self.units(text.lower() if self.lowercase else text)
            return "".join([alphabet.setdefault(token, chr(len(alphabet))) for token in tokens])

        return encode

    def signature(self, references: Iterable[Sequence[str]]) -> str:
        import rapidfuzz

        case = "lc" if self.lowercase else "mixed"
        parts = f"nrefs:{reference_count(references) or 'var'}|case:{case}|{self._token_signature()}{self._prepared_signature()}"
        return f"{parts}|rapidfuzz:{rapidfuzz.__version__}"

    @abstractmethod
    def _token_signature(self) -> str: ...


class WER(EditRate):
    """Word error rate. Words are separated by white space. Nothing is normalised, except case if ``lowercase`` is set."""

    name = "WER"
    unit = "words"

    def units(self, text: str) -> Sequence[str]:
        return text.split()

    def _token_signature(self) -> str:
        return "tok:whitespace"


class CER(EditRate):
    """Character error rate over Unicode code points. The space between two words is one character unless ``spaces`` is False."""

    name = "CER"
    unit = "characters"

    def __init__(self, *, text: TextPipeline = NO_STEPS, lowercase: bool = False, spaces: bool = True) -> None:
        super().__init__(text=text, lowercase=lowercase)
        self.spaces = spaces

    def units(self, text: str) -> Sequence[str]:
        return " ".join(text.split()) if self.spaces else "".join(text.replace(ZERO_WIDTH_SPACE, " ").split())

    def _token_signature(self) -> str:
        return f"tok:char|space:{'yes' if self.spaces else 'no'}"
