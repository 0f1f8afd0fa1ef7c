"""The package's neural models as decoder components, stepped as a batch.

Shapes: N hypotheses, V vocabulary.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from attlm_fairseq.checkpoints.reading import TrainedModel, load_model
from attlm_fairseq.checkpoints.vocabulary import EOS, UNK
from attlm_fairseq.decoding.cache import SharedByCopies
from attlm_fairseq.modules.kernels.low_precision_steps import stepping_model
from attlm_fairseq.modules.state import LanguageModelState
from attlm_fairseq.scoring.deviation import Deviation, measured_on


class DecoderLM(SharedByCopies):
    """A trained model as an ``IncrementalLM``.

    It runs on the device it was loaded to; tokens and rows may be on any.

    A decoder that keeps its hypotheses as a batch needs ``start``, ``step`` and ``select``. One that keeps a state for each hypothesis,
    or in a cache by prefix, calls ``step_each`` with as many of them as it has to extend.
    """

    def __init__(self, trained: TrainedModel, precision: str = "float32") -> None:
        """Take a model, and the precision of the weights that steps read, see ``stepping_model``. Raises ValueError."""
        self.trained = trained
        self.model = trained.model
        self.precision = precision
        self.stepping = stepping_model(trained.model, precision)
        self.vocabulary = trained.vocabulary
        self.eos = EOS
        self.path = trained.path
        self.device = trained.model.embedding.weight.device

    @classmethod
    def load(cls, path: Path | str, dictionary: Path | str | None = None, device: str = "cpu", precision: str = "float32") -> DecoderLM:
        """Load a model.

        Args:
            path: a checkpoint of fairseq-train or a folder written by ``attlm export``.
            dictionary: the checkpoint's ``dict.txt``; by default the one next to it or in its data folder.
            device: where the model runs.
            precision: of the weights that a step reads: ``float32``, ``bfloat16``, or ``int8``, which is fastest on CPUs.

        Raises:
            InputError: unusable files.
            ValueError: another precision, or int8 not on a CPU.
        """
        return cls(load_model(Path(path), None if dictionary is None else Path(dictionary), device), precision)

    def save(self, folder: Path) -> None:
        """Write a folder as ``attlm export`` does, from the files that the model was loaded from. Raises InputError."""
        if self.path.is_dir():
            shutil.copytree(self.path, folder)
            return
        from attlm_fairseq.verbs.export import export_model  # here: a decoder that saves nothing needs no scorers

        with tempfile.TemporaryDirectory() as place:
            dictionary = Path(place) / "dict.txt"
            dictionary.write_text("".join(f"{symbol} 1\n" for symbol in self.vocabulary.symbols[UNK + 1 :]), encoding="utf-8")
            export_model(self.path, folder, dictionary=dictionary)

    def deviation(self, sentences: Sequence[Sequence[str]]) -> Deviation:
        """Measure what the precision of the weights does to the scores of sentences, on a sample of them.

        A score is the sum of ln p of the words and ``</s>``.
        """
        distinct = list(dict.fromkeys(tuple(self.vocabulary.ids(words)) for words in sentences))
        lms = {self.precision: self} | {"float32": DecoderLM(self.trained)}
        return measured_on(distinct, lambda sample, precision: lms[precision].sentence_log_probs(sample), self.precision)

    def sentence_log_probs(self, sentences: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], list[float]]:
        """Return ln p of the words of each sentence and of its end, by steps of all sentences together."""
        length = max(map(len, sentences))
        tokens = torch.tensor([[self.eos, *words, *[self.eos] * (length + 1 - len(words))] for words in sentences])
        states, columns = self.start(len(sentences)), []
        for before, following in zip(tokens.T, tokens.T[1:], strict=False):
            log_probs, states = self.step(states, before)
            columns.append(log_probs.cpu().gather(1, following.unsqueeze(1)))
        rows = torch.cat(columns, dim=1).tolist()
        return {words: row[: len(words) + 1] for words, row in zip(sentences, rows, strict=True)}

    def start(self, rows: int = 1) -> LanguageModelState:
        """The states of ``rows`` hypotheses that have not even begun: the first step feeds them ``eos``."""
        return self.model.initial_state(rows)

    @torch.no_grad()  # tensors of inference mode could not be changed in place by the decoder
    def step(self, states: LanguageModelState, tokens: Tensor) -> tuple[Tensor, LanguageModelState]:
        """States of N hypotheses and the token (N,) each has just taken -> natural-log probabilities (N, V) of the next, new states."""
        tokens = tokens.to(self.device)
        if self.device.type == "cpu":  # hypotheses that took the same word share its products; a GPU would wait for the number of words
            words, places = tokens.unique(return_inverse=True)
            inputs = self.stepping.inputs(words).select(places)
        else:
            inputs = self.stepping.inputs(tokens)
        features, read, states = self.stepping.step_features(inputs, states)
        return self.stepping.output.log_probs(features, read), states

    @torch.no_grad()
    def read(self, states: LanguageModelState, tokens: Tensor) -> LanguageModelState:
        """States of N hypotheses and the T > 0 tokens (N, T) that each takes -> the states after them, to rounding those of T steps.

        The distributions on the way are not computed. The result shares no memory.
        """
        states = self.model.state_after(tokens.to(self.device), states)
        return self.select(states, torch.arange(len(tokens)))  # a window of a longer memory would keep all of it

    def select(self, states: LanguageModelState, rows: Tensor) -> LanguageModelState:
        """The states of the given rows (N,), in their order; a row may be taken any number of times. The result shares no memory."""
        return states.select(rows.to(self.device))

    def join(self, states: Sequence[LanguageModelState]) -> LanguageModelState:
        """One batched state of all rows of the given ones, in order.

        The memories must be of one length: those of ``combined`` attention, AMSRN and (up to its window) KVP have a slot for each word
        read, and padding them would give the readers a mask that no other use needs. ``step_each`` groups by length and joins what
        fits. Raises ValueError where the lengths differ.
        """
        return LanguageModelState.cat(states)

    def step_each(self, states: Sequence[LanguageModelState], tokens: Sequence[int]) -> tuple[Tensor, list[LanguageModelState]]:
        """States of one row each, in any mixture of lengths -> natural-log probabilities (N, V) and N new states of one row.

        Hypotheses whose memories are of one length are computed together. A new state owns its tensors: keeping it keeps nothing else.
        """
        if len(states) != len(tokens) or not states:
            raise ValueError(f"{len(states)} states and {len(tokens)} tokens: one of each for every hypothesis, and at least one")
        groups: dict[tuple, list[int]] = {}
        for place, state in enumerate(states):
            groups.setdefault(state.shape, []).append(place)
        log_probs: list[Tensor] = []
        stepped: dict[int, LanguageModelState] = {}
        for places in groups.values():
            together = self.join([states[place] for place in places])
            values, together = self.step(together, torch.tensor([tokens[place] for place in places]))
            log_probs.append(values)
            for row, place in enumerate(places):
                stepped[place] = together.row(row)
        after = [stepped[place] for place in range(len(states))]
        if len(groups) == 1:
            return log_probs[0], after
        return torch.cat(log_probs)[torch.tensor(list(stepped)).argsort().to(self.device)], after
