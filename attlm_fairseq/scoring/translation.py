"""fairseq's translation models as scorers: ln p(hypothesis | source), the same right to left, and ln p(source | hypothesis).

Each source sentence is encoded once for all hypotheses of its list. The decoder then reads batches of whole hypotheses
(teacher forcing). The sums over tokens and the sentence end are those of ``fairseq-generate --score-reference``.

Shapes: N rows of a batch, T tokens with the end, V vocabulary.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attlm_fairseq.checkpoints.reading import find_dictionary
from attlm_fairseq.checkpoints.vocabulary import EOS, PAD, UNK, Vocabulary, fingerprint
from attlm_fairseq.errors import InputError
from attlm_fairseq.files import FileHash
from attlm_fairseq.scoring.compute import DEFAULT_DEVICE, DeviceConfig
from attlm_fairseq.scoring.deviation import Deviation, measured_on
from attlm_fairseq.scoring.fairseq_models import load_models, read_options, task_option
from attlm_fairseq.scoring.lm_spec import Direction
from attlm_fairseq.scoring.oov import LOUD_OOV_RATE
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore
from attlm_fairseq.scoring.token_lm import autocast

LOGIT_COPIES = 3  # logits, their log-softmax, and what is being computed
TASKS = ("translation", "translation_with_lm")


class Pair(NamedTuple):
    """The token ids that the encoder reads and those that the decoder predicts, without sentence ends."""

    read: tuple[int, ...]
    written: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.written)


class TranslationModels(NamedTuple):
    """Translation models of one task, whose probabilities of each token are averaged.

    Attributes:
        models: encoder-decoder models of fairseq.
        weights: weights of the probabilities; they sum to 1.
        source: the encoder's vocabulary.
        target: the decoder's vocabulary.
        left_pad_source: whether source batches are padded on the left.
        left_pad_target: whether target batches are padded on the left.
        paths: the checkpoints.
    """

    models: Sequence[Any]
    weights: Sequence[float]
    source: Vocabulary
    target: Vocabulary
    left_pad_source: bool
    left_pad_target: bool
    paths: Sequence[Path]


class TranslationScorer(Scorer):
    """Scores of hypotheses given their source sentences: natural log, summed over the tokens of a hypothesis and its end.

    - ``forward``: ln p(hypothesis | source), word by word.
    - ``right-to-left``: the same with a model trained on reversed target sentences; a word is predicted from the words after
      it.
    - ``reverse``: ln p(source | hypothesis) with a model of the other direction (noisy channel), all at the sentence end.
    """

    def __init__(
        self, models: TranslationModels, name: str = "mt", direction: Direction = "forward", compute: DeviceConfig = DEFAULT_DEVICE
    ) -> None:
        self.models = models
        self._hashes = list(map(FileHash, models.paths))
        self.name = name
        self.direction = direction
        self.compute = compute
        self.left_to_right = direction == "forward"
        self.deviation: Deviation | None = None
        self._source_tokens = self._unknown_source_tokens = 0

    @property
    def uses_source(self) -> bool:
        return True

    def score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """Refuse: raises InputError unless there is no sentence."""
        if sentences:
            raise InputError(f"{self.name} is a translation model, which needs the source sentences: give --source FILE, one per line")
        return []

    def score_translations(self, sentences: Sequence[Sequence[str]], sources: Sequence[Sequence[str]]) -> list[SentenceScore]:
        of_hypotheses, of_sources = self.models.target, self.models.source
        if self.direction == "reverse":
            of_hypotheses, of_sources = of_sources, of_hypotheses
        hypotheses = [tuple(of_hypotheses.ids(words)) for words in sentences]
        translated = [tuple(of_sources.ids(words)) for words in sources]
        self._source_tokens += sum(map(len, translated))
        self._unknown_source_tokens += sum(ids.count(UNK) for ids in translated)
        pairs = [self._pair(source, hypothesis) for source, hypothesis in zip(translated, hypotheses, strict=True)]
        distinct = sorted(set(pairs), key=lambda pair: (-len(pair.read), pair.read, len(pair), pair.written))
        self.check_lengths(distinct)
        if self.compute.precision != "float32" and self.deviation is None and distinct:
            self.deviation = measured_on(distinct, self._log_probs, self.compute.precision)
        found = self._log_probs(distinct, self.compute.precision)
        return [self._as_words(found[pair], hypothesis) for pair, hypothesis in zip(pairs, hypotheses, strict=True)]

    def signature(self) -> dict[str, object]:
        return {
            "kind": "fairseq translation",
            "direction": self.direction,
            "checkpoints": list(map(str, self.models.paths)),
            "sha256": [found.digest() for found in self._hashes],
            "weights": list(self.models.weights),
            "vocabulary": [len(self.models.source), len(self.models.target)],
            "dictionaries": [fingerprint(words.symbols) for words in (self.models.source, self.models.target)],
            "OOV policy": "p(<unk>), one class for all unknown words",
            "precision": self.compute.precision,
        }

    def source_batch(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Return what the encoder reads: token ids (N, T) with the sentence end, and their numbers (N,)."""
        tokens = self._padded([(*source, EOS) for source in sources], self.models.left_pad_source)
        return tokens, torch.tensor([len(source) + 1 for source in sources], device=self.compute.device)

    def notes(self) -> list[str]:
        deviation = [f"{self.name}: {self.deviation}"] if self.deviation else []
        unknown, words = self._unknown_source_tokens, self._source_tokens
        if words and unknown > LOUD_OOV_RATE * words:
            warning = f"WARNING: {self.name} does not know {unknown / words:.1%} of the source's words: does --source-text match its data?"
            return [*deviation, warning]
        return deviation

    def _pair(self, source: tuple[int, ...], hypothesis: tuple[int, ...]) -> Pair:
        if self.direction == "reverse":
            return Pair(hypothesis, source)
        return Pair(source, hypothesis if self.direction == "forward" else hypothesis[::-1])

    def _as_words(self, values: Sequence[float], hypothesis: tuple[int, ...]) -> SentenceScore:
        unknown = tuple(token == UNK for token in hypothesis)
        if self.direction == "reverse":
            return SentenceScore((*[0.0] * len(hypothesis), sum(values)), unknown)
        words = values[:-1] if self.direction == "forward" else values[-2::-1]
        return SentenceScore((*words, values[-1]), unknown)

    def check_lengths(self, distinct: Sequence[Pair]) -> None:
        """Raise InputError for a sentence that is longer than a model can read or write."""
        for model in self.models.models:
            reads, writes = model.max_positions()
            for what, limit, longest in (
                ("source", reads, max((len(pair.read) for pair in distinct), default=0)),
                ("target", writes, max(map(len, distinct), default=0)),
            ):
                if limit is not None and longest + 1 > limit:
                    raise InputError(
                        f"{self.name}: a sentence on the model's {what} side has {longest} tokens, the model takes at most {limit - 1}; "
                        "leave such lists out or split them"
                    )

    @torch.inference_mode()
    def _log_probs(self, distinct: Sequence[Pair], precision: str) -> dict[Pair, tuple[float, ...]]:
        """Return ln p of the tokens written and of the end, for pairs sorted by what the encoder reads."""
        found: dict[Pair, tuple[float, ...]] = {}
        with autocast(self.compute.device, precision), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, about the masks that fairseq gives it
            for batch in self._batches(distinct):
                for pair, values in zip(batch, self._of_batch(batch).tolist(), strict=True):
                    found[pair] = tuple(values[-len(pair) - 1 :] if self.models.left_pad_target else values[: len(pair) + 1])
        return found

    def _of_batch(self, batch: Sequence[Pair]) -> Tensor:
        """Return ln p (N, T) of what each pair writes, float64; what stands at padding means nothing."""
        models = self.models
        places = {source: place for place, source in enumerate(dict.fromkeys(pair.read for pair in batch))}
        rows = torch.tensor([places[pair.read] for pair in batch], device=self.compute.device)
        sources, lengths = self.source_batch(list(places))
        before = self._padded([(EOS, *pair.written) for pair in batch], models.left_pad_target)
        targets = self._padded([(*pair.written, EOS) for pair in batch], models.left_pad_target)
        columns = []
        for model, weight in zip(models.models, models.weights, strict=True):
            encoded = model.encoder.reorder_encoder_out(model.encoder(sources, src_lengths=lengths), rows)
            output = model.decoder(before, encoder_out=encoded)
            log_probs = model.get_normalized_probs(output, log_probs=True)
            columns.append(log_probs.gather(2, targets.unsqueeze(2)).squeeze(2).double() + torch.tensor(weight).double().log())
        return torch.stack(columns).logsumexp(dim=0).cpu()

    def _padded(self, sentences: Sequence[Sequence[int]], left: bool) -> Tensor:
        longest = max(map(len, sentences))
        rows = [[*[PAD] * (longest - len(ids)) * left, *ids, *[PAD] * (longest - len(ids)) * (not left)] for ids in sentences]
        return torch.tensor(rows, device=self.compute.device)

    def _batches(self, distinct: Sequence[Pair]) -> Iterator[list[Pair]]:
        """Yield consecutive pairs, as many as the memory has room for the logits of."""
        most = max(1, self.compute.memory // (4 * LOGIT_COPIES * len(self.models.target)))  # tokens
        batch: list[Pair] = []
        longest = 0
        for pair in distinct:
            longest = max(longest, len(pair) + 1, len(pair.read) + 1)
            if batch and (len(batch) + 1) * longest > most:
                yield batch
                batch, longest = [], max(len(pair) + 1, len(pair.read) + 1)
            batch.append(pair)
        if batch:
            yield batch


def load_translation_models(
    paths: Sequence[Path],
    name: str = "mt",
    direction: Direction = "forward",
    weights: Sequence[float] | None = None,
    dictionaries: Path | None = None,
    compute: DeviceConfig = DEFAULT_DEVICE,
) -> TranslationScorer:
    """Load checkpoints of ``fairseq-train --task translation``. Several are an ensemble that averages token probabilities.

    Args:
        paths: the checkpoints.
        name: the scorer's name.
        direction: see ``TranslationScorer``.
        weights: weights of an ensemble; None for equal weights.
        dictionaries: folder with ``dict.SOURCE.txt`` and ``dict.TARGET.txt``; None looks next to the checkpoint, then in
            its data folder.
        compute: device, precision and memory.

    Raises:
        InputError: fairseq is not installed, a file is not a translation model, or its dictionaries are missing or do not
            fit.
    """
    source, target = _find_dictionaries(paths[0], dictionaries)
    overrides = {"data": str(source.parent), "eval_bleu": False, "encoder_embed_path": None, "decoder_embed_path": None}
    models, options, _ = load_models(paths, overrides)
    from fairseq.models import FairseqEncoderDecoderModel

    for path, model in zip(paths, models, strict=True):
        if not isinstance(model, FairseqEncoderDecoderModel):
            raise InputError(f"holds a {type(model).__name__}, not a model with an encoder and a decoder", path=path)
        model.to(compute.device).eval()
    shares = [1.0] * len(models) if weights is None else list(weights)
    normalised = [share / sum(shares) for share in shares]
    vocabularies = Vocabulary.read(source), Vocabulary.read(target)
    left_pad = bool(options.task.left_pad_source), bool(options.task.left_pad_target)
    return TranslationScorer(TranslationModels(models, normalised, *vocabularies, *left_pad, tuple(paths)), name, direction, compute)


def _find_dictionaries(path: Path, folder: Path | None) -> list[Path]:
    """Return the dictionaries of a checkpoint, of the source and of the target language.

    Raises InputError if it is not a checkpoint of a translation model, or if a dictionary is missing.
    """
    config = read_options(path)
    languages = [task_option(config, "source_lang"), task_option(config, "target_lang")]
    task = task_option(config, "_name") or task_option(config, "task")
    if None in languages or task not in TASKS:
        raise InputError(f"was trained with --task {task}; expected a translation model, of --task translation", path=path)
    names = [f"dict.{language}.txt" for language in languages]
    folder = find_dictionary(path, config, names).parent if folder is None else folder
    for missing in (folder / name for name in names if not (folder / name).is_file()):
        raise InputError(f"there is no such file; --dict takes the folder with {' and '.join(names)} of a translation model", path=missing)
    return [folder / name for name in names]
