"""A neural corrector: a fairseq translation model from hypothesis to reference, as one more source of candidates.

Any model of ``fairseq-train --task translation`` that was trained on (hypothesis, reference) pairs of words; ``--arch attentive_lstm``
is this package's own.
"""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from attlm_fairseq.errors import InputError, NoDictionaryError
from attlm_fairseq.nbest.corrections.alignment import MAX_WORDS
from attlm_fairseq.nbest.corrections.phrase_table import MAX_VANISHING
from attlm_fairseq.nbest.nbest_list import NbestList

if TYPE_CHECKING:
    from torch import Tensor

CORRECTOR = "corrector"
BEAM = 5
SENTENCES = 32  # that are searched or scored together
MAX_LENGTH = 200  # words of a correction, as fairseq-generate has it


class Pair(NamedTuple):
    """What the model reads, and a text whose probability is asked for; words."""

    read: tuple[str, ...]
    written: tuple[str, ...]


@dataclass(frozen=True)
class Corrector:
    """A translation model and its task, which holds the dictionaries. Made by ``load``."""

    model: Any
    task: Any

    @classmethod
    def load(cls, path: Path) -> Corrector:
        """Load a checkpoint; ``dict.*.txt`` are looked for next to it, then in the data folder that it names.

        Raises:
            InputError: fairseq is not installed, or the file is not a translation model, or its dictionaries are missing.
        """
        if importlib.util.find_spec("fairseq") is None:
            raise InputError("a corrector is a model of fairseq, which is not installed: pip install 'attlm-fairseq[train]'", path=path)
        from attlm_fairseq.checkpoints.reading import check_finite

        with _quiet():
            from fairseq.models import FairseqEncoderDecoderModel

            model, task = _loaded(path)
        if not isinstance(model, FairseqEncoderDecoderModel):
            raise InputError(f"holds a {type(model).__name__}, not a translation model", path=path)
        check_finite(model, path)
        return cls(model.eval(), task)

    def candidates(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the BEAM most probable corrections of each text, the best first.

        Those with an unknown word are left out, and those that are more than MAX_VANISHING words shorter than the text:
        small models end long sentences early.
        """
        words = [text.split() for text in texts]
        todo = [i for i, of_text in enumerate(words) if 0 < len(of_text) <= MAX_WORDS]
        todo.sort(key=lambda i: -len(words[i]))  # fairseq's LSTM encoders want the longest first
        found: list[list[str]] = [[] for _ in texts]
        for begin in range(0, len(todo), SENTENCES):
            batch = todo[begin : begin + SENTENCES]
            for i, corrected in zip(batch, self._searched([words[i] for i in batch]), strict=True):
                found[i] = [text for text in dict.fromkeys(corrected) if len(text.split()) >= len(words[i]) - MAX_VANISHING]
        return found

    def scored(self, lists: Sequence[NbestList]) -> list[NbestList]:
        """Return the lists with the score ``corrector``: ln p of each text and its end, given the input 1-best text."""
        pairs = [
            [Pair(tuple(nbest.hypotheses[0].text.split()), tuple(hypothesis.text.split())) for hypothesis in nbest.hypotheses]
            for nbest in lists
        ]
        distinct = sorted({pair for of_list in pairs for pair in of_list}, key=lambda pair: (-len(pair.read), -len(pair.written), pair))
        totals: dict[Pair, float] = {}
        for begin in range(0, len(distinct), SENTENCES):
            batch = distinct[begin : begin + SENTENCES]
            totals |= zip(batch, self._log_probs(batch), strict=True)
        return [
            replace(
                nbest,
                hypotheses=[
                    replace(hypothesis, scores=hypothesis.scores | {CORRECTOR: totals[pair]})
                    for hypothesis, pair in zip(nbest.hypotheses, of_list, strict=True)
                ],
            )
            for nbest, of_list in zip(lists, pairs, strict=True)
        ]

    def _searched(self, sentences: Sequence[Sequence[str]]) -> Iterator[list[str]]:
        """Search for corrections of sentences of words with fairseq's beam search."""
        target = self.task.target_dictionary
        for hypotheses in self._generator.generate([self.model], {"net_input": self._source(sentences)}):
            tokens = [[int(token) for token in hypothesis["tokens"][:-1]] for hypothesis in hypotheses]
            yield [" ".join(target[token] for token in of_one) for of_one in tokens if target.unk() not in of_one]

    def _log_probs(self, pairs: Sequence[Pair]) -> list[float]:
        """Return ln p of what each pair writes, summed over words and end; those that read most words first."""
        from fairseq.data.data_utils import collate_tokens
        from fairseq.sequence_scorer import SequenceScorer

        target = self.task.target_dictionary
        ids = self._ids([pair.written for pair in pairs], target)
        written = collate_tokens(ids, target.pad())
        before = collate_tokens(ids, target.pad(), target.eos(), move_eos_to_beginning=True)
        sample = {"net_input": self._source([pair.read for pair in pairs]) | {"prev_output_tokens": before}, "target": written}
        found = SequenceScorer(target).generate([self.model], sample)
        return [float(hypothesis["positional_scores"].double().sum()) for [hypothesis] in found]

    def _source(self, sentences: Sequence[Sequence[str]]) -> dict[str, Tensor]:
        import torch
        from fairseq.data.data_utils import collate_tokens

        ids = self._ids(sentences, self.task.source_dictionary)
        left = bool(self.task.cfg.left_pad_source)
        tokens = collate_tokens(ids, self.task.source_dictionary.pad(), left_pad=left)
        return {"src_tokens": tokens, "src_lengths": torch.tensor(list(map(len, ids)))}

    def _ids(self, sentences: Sequence[Sequence[str]], dictionary: Any) -> list[Tensor]:
        import torch

        return [torch.tensor([*map(dictionary.index, words), dictionary.eos()]) for words in sentences]

    @cached_property
    def _generator(self) -> Any:
        from fairseq.sequence_generator import SequenceGenerator

        return SequenceGenerator([self.model], self.task.target_dictionary, beam_size=BEAM, max_len_b=MAX_LENGTH)


def _loaded(path: Path) -> tuple[Any, Any]:
    """The model and the task of a checkpoint. Nothing that it holds is run. Raises InputError."""
    from fairseq import checkpoint_utils

    from attlm_fairseq.checkpoints.reading import MISSHAPEN, misshapen, read_plain_data
    from attlm_fairseq.plugin import register

    content = read_plain_data(path)
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise InputError("holds no model of fairseq-train", path=path)
    given = (content.get("cfg") or {"task": content.get("args")}).get("task")  # before 2021 one Namespace
    task: dict[str, Any] = given if isinstance(given, dict) else vars(given) if given else {}
    names = [f"dict.{task.get(side)}.txt" for side in ("source_lang", "target_lang")]
    if not all(task.get(side) for side in ("source_lang", "target_lang")):
        raise InputError("is not a model of fairseq's task translation", path=path)
    folder = _folder_of(path, str(task.get("data") or ""), names)
    register()  # fairseq then refuses checkpoints with code, in options too
    try:
        overrides = {"data": str(folder), "eval_bleu": False}
        [model], _, loaded_task = checkpoint_utils.load_model_ensemble_and_task([str(path)], overrides)
    except MISSHAPEN as error:
        raise misshapen(error, path) from None
    return model, loaded_task


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep fairseq from telling of each dictionary, module and missing package."""
    logger = logging.getLogger("fairseq")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _folder_of(path: Path, data: str, names: Sequence[str]) -> Path:
    """The folder with the dictionaries: the checkpoint's, or the data folder, from the checkpoint's folder or one above it."""
    places = [path.parent, *(above / data for above in (*path.resolve().parents, Path()) if data)]
    for folder in places:
        if all((folder / name).is_file() for name in names):
            return folder
    raise NoDictionaryError(
        f"{' and '.join(names)} are neither next to it nor in its data folder {data!r}: copy them next to it", path=path
    )
