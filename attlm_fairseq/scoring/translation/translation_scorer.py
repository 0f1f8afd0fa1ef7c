"""Translation models as scorers: ln p(hypothesis | source), the same right to left, and ln p(source | hypothesis).

Each source sentence is encoded once for all hypotheses of its list. The decoder then reads batches of whole hypotheses
(teacher forcing).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from attlm_fairseq.batching import padded_batches
from attlm_fairseq.errors import InputError, beginning
from attlm_fairseq.modules.kernels.torch_settings import full_float32
from attlm_fairseq.numeric import ceil_div
from attlm_fairseq.scoring.compute import DEFAULT_DEVICE, DeviceConfig
from attlm_fairseq.scoring.deviation import Deviation, measured_on
from attlm_fairseq.scoring.foreign_lms.token_lm import autocast
from attlm_fairseq.scoring.lm_options import Direction
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore
from attlm_fairseq.scoring.translation.translation_model import Pair, TranslationModel
from attlm_fairseq.scoring.unknown_words.oov import LOUD_OOV_RATE

PIECES_ALIKE = 64  # of source sentences whose translations have one limit
LAYER_COPIES = 12  # a layer's intermediate results take about this many times the memory of its largest one
LOGIT_COPIES = 3  # logits, their log-softmax, and what is being computed


class TranslationScorer(Scorer):
    """Scores of hypotheses given their source sentences: natural log, summed over the tokens of a hypothesis and its end.

    - ``forward``: ln p(hypothesis | source), word by word if the model's tokens are words; else all at the sentence end.
    - ``right-to-left``: the same with a model trained on reversed target sentences; a word is predicted from the words after
      it.
    - ``reverse``: ln p(source | hypothesis) with a model of the other direction (noisy channel), all at the sentence end.
    """

    def __init__(
        self, model: TranslationModel, name: str = "mt", direction: Direction = "forward", compute: DeviceConfig = DEFAULT_DEVICE
    ) -> None:
        self.model = model
        self.name = name
        self.direction = direction
        self.compute = compute
        self.deviation: Deviation | None = None
        self._source_words = self._unknown_source_words = 0

    @property
    def translates_back(self) -> bool:
        return self.direction == "reverse"

    @property
    def left_to_right(self) -> bool:
        return self.direction == "forward" and self.model.word_by_word

    @property
    def uses_source(self) -> bool:
        return True

    def score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Refuse: raises InputError unless there is no sentence."""
        if sentences:
            raise InputError(f"{self.name} is a translation model, which needs the source sentences: give --source FILE, one per line")
        return []

    def score_translations(self, sentences: Sequence[Sequence[str]], sources: Sequence[Sequence[str]]) -> list[SentenceScore]:
        hypotheses, translated = [tuple(words) for words in sentences], [tuple(words) for words in sources]
        reverse, model = self.direction == "reverse", self.model
        unknown = model.unknown_written if reverse else model.unknown_read
        flags = {words: unknown(words) for words in set(translated)}
        self._source_words += sum(map(len, translated))
        self._unknown_source_words += sum(sum(flags[words]) for words in translated)
        read, written = (hypotheses, translated) if reverse else (translated, hypotheses)
        read_ids = {words: model.read_ids(words) for words in set(read)}
        written_ids = {words: self._written_ids(words) for words in set(written)}
        self._check_lengths("source", read_ids, model.most_read)
        self._check_lengths("target", written_ids, model.most_written)
        pairs = [Pair(read_ids[source], written_ids[target]) for source, target in zip(read, written, strict=True)]
        distinct = sorted(set(pairs), key=lambda pair: (-len(pair.read), pair.read, len(pair), pair.written))
        if self.compute.precision != "float32" and self.deviation is None and distinct:
            self.deviation = measured_on(distinct, self._log_probs, self.compute.precision)
        found = self._log_probs(distinct, self.compute.precision)
        return [self._as_words(found[pair], words) for pair, words in zip(pairs, hypotheses, strict=True)]

    def candidates(self, sentences: Sequence[Sequence[str]], count: int, most_longer: int) -> list[list[str]]:
        """Return at most ``count`` probable translations of each sentence, best first, without unknown words.

        Left out are those that have not ended, and those that are too long to be scored.

        Args:
            sentences: sentences of words; fairseq's LSTM encoders want the longest first.
            count: the width of the beam.
            most_longer: how many pieces (words, subwords or bytes) longer than its source sentence a translation may be. The length of
                the sentence is rounded up to a multiple of PIECES_ALIKE: sentences of one limit are searched together.

        Raises:
            InputError: a sentence is longer than the model can read.
        """
        read = {tuple(words): self.model.read_ids(words) for words in sentences}
        self._check_lengths("source", read, self.model.most_read)
        alike: dict[int, list[int]] = {}  # by limit, so that no sentence's candidates depend on the others
        for place, words in enumerate(sentences):
            limit = most_longer + PIECES_ALIKE * ceil_div(len(read[tuple(words)]), PIECES_ALIKE)
            alike.setdefault(limit, []).append(place)
        found: list[list[str]] = [[] for _ in sentences]
        for limit, places in alike.items():
            for place, texts in zip(places, self.model.searched([sentences[at] for at in places], count, limit), strict=True):
                found[place] = texts
        most = self.model.most_written
        return found if most is None else [[text for text in texts if len(self.model.written_ids(text.split())) <= most] for texts in found]

    def signature(self) -> dict[str, object]:
        return {**self.model.signature(), "direction": self.direction, "precision": self.compute.precision}

    def notes(self) -> list[str]:
        found = [f"{self.name}: {self.deviation}"] if self.deviation else []
        unknown, words = self._unknown_source_words, self._source_words
        if words and unknown > LOUD_OOV_RATE * words:
            found.append(
                f"WARNING: {self.name} does not know {unknown / words:.1%} of the source's words: does --source-text match its data?"
            )
        return [*found, *self.model.notes(self.name)]

    def _written_ids(self, words: Sequence[str]) -> tuple[int, ...]:
        return self.model.written_ids(words[::-1] if self.direction == "right-to-left" else words)

    def _as_words(self, values: Sequence[float], words: Sequence[str]) -> SentenceScore:
        unknown = self.model.unknown_read(words) if self.direction == "reverse" else self.model.unknown_written(words)
        if self.direction == "reverse" or not self.model.word_by_word:
            return SentenceScore((*[0.0] * len(words), math.fsum(values)), unknown)
        in_order = values[:-1] if self.direction == "forward" else values[-2::-1]
        return SentenceScore((*in_order, values[-1]), unknown)

    def _check_lengths(self, side: str, sentences: Mapping[tuple[str, ...], Sequence[int]], limit: int | None) -> None:
        """Raise InputError if a sentence, given with its tokens, is longer than the model can read or write."""
        if limit is None or not (long := [words for words, ids in sentences.items() if len(ids) > limit]):
            return
        longest = max(long, key=lambda words: len(sentences[words]))
        raise InputError(
            f"{self.name}: the sentence {beginning(longest)} on the model's {side} side has "
            f"{len(sentences[longest])} tokens with its end, the model takes at most {limit}; leave such lists out or split them"
        )

    @torch.inference_mode()
    @full_float32()
    def _log_probs(self, distinct: Sequence[Pair], precision: str) -> dict[Pair, tuple[float, ...]]:
        """Return ln p of the tokens written, for pairs sorted by what the encoder reads."""
        found: dict[Pair, tuple[float, ...]] = {}
        longest = max((max(len(pair), len(pair.read)) for pair in distinct), default=0)
        values = LOGIT_COPIES * (self.model.vocabulary_size + self.model.heads * longest) + LAYER_COPIES * self.model.layer_size
        tokens = max(1, self.compute.memory // (4 * values))
        with autocast(self.compute.device, precision):
            for batch in padded_batches(distinct, lambda pair: max(len(pair), len(pair.read)), tokens):
                found.update(zip(batch, self.model.log_probs(batch), strict=True))
        return found


def load_translation_models(
    paths: Sequence[Path],
    name: str = "mt",
    direction: Direction = "forward",
    weights: Sequence[float] | None = None,
    dictionaries: Path | None = None,
    languages: str | None = None,
    source_prefix: str | None = None,
    compute: DeviceConfig = DEFAULT_DEVICE,
) -> TranslationScorer:
    """Load checkpoints of ``fairseq-train --task translation`` or the folder of an encoder-decoder model of Hugging Face.

    Several checkpoints are an ensemble that averages token probabilities.

    Args:
        paths: the checkpoints, or one folder.
        name: the scorer's name.
        direction: see ``TranslationScorer``.
        weights: weights of an ensemble; None for equal weights.
        dictionaries: folder with ``dict.SOURCE.txt`` and ``dict.TARGET.txt`` of checkpoints; None looks next to the checkpoint, then
            in its data folder.
        languages: ``SOURCE:TARGET``: what a multilingual model of Hugging Face reads and writes, as its tokenizer calls them; or the
            languages of checkpoints that do not name them.
        source_prefix: text before each sentence that a model of Hugging Face reads.
        compute: device, precision and memory.

    Raises:
        InputError: fairseq or transformers is not installed, a file is not a translation model, its dictionaries are missing or do not
            fit, or an option is not for this kind of model.
    """
    if any(path.is_dir() for path in paths):
        from attlm_fairseq.scoring.translation.huggingface_translation import load_huggingface_translation

        if len(paths) > 1:
            raise InputError(f"{name}: an ensemble takes checkpoints of fairseq; give each model of Hugging Face by itself", path=paths[0])
        if dictionaries is not None:
            raise InputError(f"{name}: --dict is for checkpoints of fairseq; this folder has its own vocabulary", path=paths[0])
        model: TranslationModel = load_huggingface_translation(paths[0], languages, source_prefix, compute)
    else:
        from attlm_fairseq.scoring.translation.fairseq_translation import load_fairseq_translation

        if source_prefix is not None:
            raise InputError(f"{name}: source_prefix is for translation models of Hugging Face: leave it out", path=paths[0])
        model = load_fairseq_translation(paths, weights, dictionaries, languages, compute)
    return TranslationScorer(model, name, direction, compute)
