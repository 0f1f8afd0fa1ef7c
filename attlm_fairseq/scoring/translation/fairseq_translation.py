"""fairseq's translation models, of words. Log-probabilities are those of ``fairseq-generate --score-reference``.

Shapes: N rows of a batch, T tokens with the end, U distinct prefixes, V vocabulary.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attlm_fairseq.checkpoints.dictionary_files import data_folders, find_dictionary
from attlm_fairseq.checkpoints.vocabulary import EOS, PAD, UNK, Vocabulary, fingerprint
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.hashes import FileHash
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.foreign_lms.fairseq_models import load_models, read_options, task_option
from attlm_fairseq.scoring.translation.translation_model import Pair, Prefixes, TranslationModel, layer_sizes

TASKS = ("translation", "translation_with_lm")
_OF_PAIR = re.compile(r"[^.]+\.([^.-]+)-([^.-]+)\.[^.]+\.(?:idx|bin)")  # a file of fairseq-preprocess


class FairseqTranslation(TranslationModel):
    """Encoder-decoder models of fairseq of one task, whose probabilities of each token are averaged.

    Attributes:
        models: the models.
        weights: weights of the probabilities; they sum to 1.
        source: the encoder's vocabulary.
        target: the decoder's vocabulary.
        left_pad: whether batches of sources, and of targets, are padded on the left.
        paths: the checkpoints.
    """

    word_by_word = True

    def __init__(
        self,
        models: Sequence[Any],
        weights: Sequence[float],
        source: Vocabulary,
        target: Vocabulary,
        left_pad: tuple[bool, bool],
        paths: Sequence[Path],
        device: torch.device | str,
    ) -> None:
        self.models = models
        self.weights = weights
        self.source = source
        self.target = target
        self.left_pad = left_pad
        self.paths = paths
        self.device = device
        self.vocabulary_size = len(target)
        self.layer_size, self.heads = layer_sizes(models)
        self.most_read, self.most_written = (
            min((limit for limit in limits if limit is not None), default=None)
            for limits in zip(*(model.max_positions() for model in models), strict=True)
        )
        self._hashes = list(map(FileHash, paths))
        self._generator = cache(self._make_generator)

    def read_ids(self, words: Sequence[str]) -> tuple[int, ...]:
        return (*self.source.ids(words), EOS)

    def written_ids(self, words: Sequence[str]) -> tuple[int, ...]:
        return (*self.target.ids(words), EOS)

    def unknown_read(self, words: Sequence[str]) -> tuple[bool, ...]:
        return tuple(token == UNK for token in self.source.ids(words))

    def unknown_written(self, words: Sequence[str]) -> tuple[bool, ...]:
        return tuple(token == UNK for token in self.target.ids(words))

    def log_probs(self, batch: Sequence[Pair]) -> list[tuple[float, ...]]:
        places = {source: place for place, source in enumerate(dict.fromkeys(pair.read for pair in batch))}
        rows = torch.tensor([places[pair.read] for pair in batch], device=self.device)
        sources, lengths = self._source_batch(list(places))
        left = self.left_pad[1]
        before = self._padded([(EOS, *pair.written[:-1]) for pair in batch], left)
        prefixes = Prefixes.of(batch)
        first = [(row, place + (before.size(1) - len(batch[row])) * left) for row, place in prefixes.first]
        columns = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, about the masks that fairseq gives it
            for model, weight in zip(self.models, self.weights, strict=True):
                encoded = model.encoder.reorder_encoder_out(model.encoder(sources, src_lengths=lengths), rows)
                output = _outputs(model.decoder, before, encoded, tuple(zip(*first, strict=True)))
                log_probs = model.get_normalized_probs((output,), log_probs=True)[0]
                columns.append(log_probs[prefixes.ends, prefixes.tokens].double() + (math.log(weight) if weight else -math.inf))
        return prefixes.by_pair(batch, torch.stack(columns).logsumexp(dim=0).tolist())

    def searched(self, sentences: Sequence[Sequence[str]], count: int, most_pieces: int) -> list[list[str]]:
        tokens, lengths = self._source_batch(list(map(self.read_ids, sentences)))
        sample = {"net_input": {"src_tokens": tokens, "src_lengths": lengths}}
        found = []
        limit = most_pieces if self.most_written is None else min(most_pieces, int(self.most_written) - 1)
        for hypotheses in self._generator(count, most_pieces).generate(self.models, sample):
            of_sentence = [hypothesis["tokens"][:-1].tolist() for hypothesis in hypotheses]
            # at the limit, fairseq ends what has not ended
            kept = [ids for ids in of_sentence if UNK not in ids and len(ids) < limit]
            found.append([" ".join(self.target.symbols[token] for token in ids) for ids in kept])
        return found

    def signature(self) -> dict[str, object]:
        return {
            "kind": "fairseq translation",
            "checkpoints": list(map(str, self.paths)),
            "sha256": [found.digest() for found in self._hashes],
            "weights": list(self.weights),
            "vocabulary": [len(self.source), len(self.target)],
            "dictionaries": [fingerprint(words.symbols) for words in (self.source, self.target)],
            "OOV policy": "p(<unk>), one class for all unknown words",
        }

    def _source_batch(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Return what the encoder reads: token ids (N, T) and their numbers (N,)."""
        return self._padded(sources, self.left_pad[0]), torch.tensor(list(map(len, sources)), device=self.device)

    def _padded(self, sentences: Sequence[Sequence[int]], left: bool) -> Tensor:
        longest = max(map(len, sentences))
        rows = [[*[PAD] * (longest - len(ids)) * left, *ids, *[PAD] * (longest - len(ids)) * (not left)] for ids in sentences]
        return torch.tensor(rows, device=self.device)

    def _make_generator(self, beam: int, most_pieces: int) -> Any:
        from fairseq.sequence_generator import SequenceGenerator

        return SequenceGenerator(list(self.models), self.models[0].decoder.dictionary, beam_size=beam, max_len_b=most_pieces)


def _outputs(decoder: Any, before: Tensor, encoded: Any, places: tuple[tuple[int, ...], ...]) -> Tensor:
    """Return what a decoder gives after the tokens ``before`` (N, T) at U places, rows and columns: (1, U, V), or what stands for logits.

    The output layer of fairseq's Transformer and LSTM is computed at these places alone.
    """
    from fairseq.models.lstm import LSTMDecoder
    from fairseq.models.transformer.transformer_decoder import TransformerDecoderBase

    if type(decoder).forward in (TransformerDecoderBase.forward, LSTMDecoder.forward):
        features = decoder.extract_features(before, encoder_out=encoded)[0]
        return decoder.output_layer(features[places].unsqueeze(0))
    return decoder(before, encoder_out=encoded)[0][places].unsqueeze(0)


def load_fairseq_translation(
    paths: Sequence[Path], weights: Sequence[float] | None, dictionaries: Path | None, languages: str | None, compute: DeviceConfig
) -> FairseqTranslation:
    """Load checkpoints of ``fairseq-train --task translation``; see ``load_translation_models``.

    Raises:
        InputError: fairseq is not installed, a file is not a translation model, its languages are not known or others than
            ``languages``, or its dictionaries are missing or do not fit.
    """
    config = read_options(paths[0])
    source_lang, target_lang = _languages(paths[0], config, dictionaries, languages)
    source, target = _find_dictionaries(paths[0], config, (source_lang, target_lang), dictionaries)
    overrides = {"data": str(source.parent), "eval_bleu": False, "encoder_embed_path": None, "decoder_embed_path": None}
    models, options, _ = load_models(paths, overrides | {"source_lang": source_lang, "target_lang": target_lang})
    from fairseq.models import FairseqEncoderDecoderModel

    for path, model in zip(paths, models, strict=True):
        if not isinstance(model, FairseqEncoderDecoderModel):
            raise InputError(f"holds a {type(model).__name__}, not a model with an encoder and a decoder", path=path)
        model.to(compute.device).eval()
    shares = [1.0] * len(models) if weights is None else list(weights)
    normalised = [share / sum(shares) for share in shares]
    left_pad = bool(options.task.left_pad_source), bool(options.task.left_pad_target)
    return FairseqTranslation(models, normalised, Vocabulary.read(source), Vocabulary.read(target), left_pad, tuple(paths), compute.device)


def _languages(path: Path, config: Mapping[str, Any], folder: Path | None, given: str | None) -> tuple[str, str]:
    """Return source and target language of a checkpoint.

    A model that was trained without -s and -t does not name them: then they are ``given``, or those of the files
    ``train.SOURCE-TARGET.*`` in its data folder, as fairseq itself finds them.

    Raises InputError if it is not a checkpoint of a translation model, or if its languages are not found or others than ``given``.
    """
    task = task_option(config, "_name") or task_option(config, "task")
    if task not in TASKS:
        raise InputError(f"was trained with --task {task}; expected a translation model, of --task translation", path=path)
    own = task_option(config, "source_lang"), task_option(config, "target_lang")
    if None not in own:
        if given not in (None, ":".join(own)):
            raise InputError(f"translates from {own[0]} to {own[1]}, --languages says {given}: leave it out", path=path)
        return own
    if given is not None:
        source, target = given.split(":")
        return source, target
    for place in data_folders(path, config) if folder is None else [folder]:
        named = {(found[1], found[2]) for file in place.glob("*.*-*.*") if (found := _OF_PAIR.fullmatch(file.name))}
        pairs = sorted(pair for pair in named if all((place / f"dict.{language}.txt").is_file() for language in pair))
        if len(pairs) > 1:
            several = ", ".join(map(":".join, pairs))
            raise InputError(f"does not name its languages, and {place} has data of several ({several}): give --languages", path=path)
        if pairs:
            return pairs[0]
    raise InputError(
        "does not name its languages, and its data folder (with train.SOURCE-TARGET.SOURCE.idx) was not found: give --languages "
        "NAME=SOURCE:TARGET, and --dict FOLDER if dict.SOURCE.txt and dict.TARGET.txt are not next to it",
        path=path,
    )


def _find_dictionaries(path: Path, config: Mapping[str, Any], languages: tuple[str, str], folder: Path | None) -> list[Path]:
    """Return the dictionaries of a checkpoint, of the source and of the target language. Raises InputError if one is missing."""
    names = [f"dict.{language}.txt" for language in languages]
    folder = find_dictionary(path, config, names).parent if folder is None else folder
    for missing in (folder / name for name in names if not (folder / name).is_file()):
        raise InputError(f"there is no such file; --dict takes the folder with {' and '.join(names)} of a translation model", path=missing)
    return [folder / name for name in names]
