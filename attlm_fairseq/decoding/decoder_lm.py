"""The package's neural models as decoder components, stepped as a batch.

Shapes: N hypotheses, V vocabulary.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from operator import index
from pathlib import Path

import torch
from torch import Tensor

from attlm_fairseq.checkpoints.export import write_checkpoint_folder
from attlm_fairseq.checkpoints.reading import TrainedModel, load_model, read_checkpoint
from attlm_fairseq.checkpoints.vocabulary import EOS, REPEATS, UNK
from attlm_fairseq.decoding.cache import SharedByCopies
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.folders import whole_folder
from attlm_fairseq.modules.kernels.low_precision_steps import stepping_model
from attlm_fairseq.modules.kernels.torch_settings import full_float32
from attlm_fairseq.modules.state import LanguageModelState
from attlm_fairseq.scoring.compute import device_name
from attlm_fairseq.scoring.deviation import Deviation, measured_on


class DecoderLM(SharedByCopies):
    """A trained model as an ``IncrementalLM``.

    It runs on the device on which it was loaded. Tokens and rows may be on any device.

    A decoder that keeps its hypotheses as a batch needs ``start``, ``step`` and ``select``. A decoder that keeps one state
    per hypothesis or per prefix calls ``step_each`` with the states that it extends.
    """

    def __init__(self, trained: TrainedModel, precision: str = "float32") -> None:
        """Wrap a model.

        Args:
            trained: the model and its vocabulary.
            precision: the precision of the weights in steps, see ``stepping_model``.

        Raises:
            ValueError: the precision is unknown, or the device does not support it.
        """
        self.trained = trained
        self.model = trained.model
        self.precision = precision
        self.stepping = stepping_model(trained.model, precision)
        self.vocabulary = trained.vocabulary
        self.eos = EOS
        self.path = trained.path
        self._file = trained.path.absolute()  # wherever the program goes
        self.device = trained.model.embedding.weight.device
        self._layout = self.start().layout

    @classmethod
    def load(
        cls, path: Path | str, dictionary: Path | str | None = None, device: str | torch.device = "cpu", precision: str = "float32"
    ) -> DecoderLM:
        """Load a model.

        Args:
            path: a checkpoint of fairseq-train or a folder written by ``attlm export``.
            dictionary: the checkpoint's ``dict.txt``; by default the one next to it or in its data folder.
            device: where the model runs.
            precision: the precision of the weights in steps: ``float32``, ``bfloat16`` or ``int8`` (fastest on CPUs).

        Raises:
            InputError: a file is missing or invalid, or there is no such device.
            ValueError: the precision is unknown, or it is int8 and the device is not a CPU.
        """
        return cls(load_model(Path(path), None if dictionary is None else Path(dictionary), device_name(device)), precision)

    def save(self, folder: Path | str) -> None:
        """Write the folder that ``attlm export`` writes, from the files of this model.

        Raises:
            InputError: the files have changed since they were loaded, or the folder is not empty or cannot be written.
        """
        folder = Path(folder)
        if self._file.is_dir():
            with whole_folder(str(folder)) as place:
                shutil.copytree(self._file, place, dirs_exist_ok=True)
                self._require_unchanged(load_model(place))
            return
        with tempfile.TemporaryDirectory() as place:
            dictionary = Path(place) / "dict.txt"
            dictionary.write_text("".join(f"{symbol} 1 {REPEATS}\n" for symbol in self.vocabulary.symbols[UNK + 1 :]), encoding="utf-8")
            content = read_checkpoint(self._file)
            again = load_model(self._file, dictionary, content=content)
            self._require_unchanged(again)
            write_checkpoint_folder(folder, again, content, self.path)

    def _require_unchanged(self, again: TrainedModel) -> None:
        """Raise InputError if the model that was loaded again is another one, such as the next best checkpoint of a training."""
        if self.trained.sha256 and again.sha256 != self.trained.sha256:
            raise InputError("has changed since it was loaded: load it again", path=self.path)

    def deviation(self, sentences: Sequence[Sequence[str]]) -> Deviation:
        """Measure on a sample of the sentences how far the precision of the weights changes their scores.

        A score is the sum of ln p over words and ``</s>``. Raises InputError if there is no sentence.
        """
        if not sentences:
            raise InputError("there is no sentence to measure the precision on")
        distinct = list(dict.fromkeys(tuple(self.vocabulary.ids(words)) for words in sentences))
        lms = {self.precision: self} | {"float32": DecoderLM(self.trained)}
        return measured_on(distinct, lambda sample, precision: lms[precision].sentence_log_probs(sample), self.precision)

    def sentence_log_probs(self, sentences: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], list[float]]:
        """Return ln p of each word and of ``</s>`` for each sentence, stepping all sentences in one batch."""
        length = max(map(len, sentences))
        tokens = torch.tensor([[self.eos, *words, *[self.eos] * (length + 1 - len(words))] for words in sentences])
        states, columns = self.start(len(sentences)), []
        for before, following in zip(tokens.T, tokens.T[1:], strict=False):
            log_probs, states = self.step(states, before)
            columns.append(log_probs.cpu().gather(1, following.unsqueeze(1)))
        rows = torch.cat(columns, dim=1).tolist()
        return {words: row[: len(words) + 1] for words, row in zip(sentences, rows, strict=True)}

    def start(self, rows: int = 1) -> LanguageModelState:
        """Return the states of ``rows`` empty hypotheses. Pass ``eos`` to the first step."""
        return self.model.initial_state(rows)

    def after(self, sentences: Sequence[Sequence[int]], state: LanguageModelState | None = None) -> LanguageModelState:
        """Return the state, of one row, of an empty hypothesis that follows these sentences of token ids, without their ends.

        As with ``Scorer.after``: each sentence is read from its ``</s>`` on, and the LM carries on what it carried in training
        (all, the newest ``--memory-slots`` slots, or with ``--reset memory`` no memory). ``state`` is that of an earlier call.

        Raises TypeError if a sentence is no sequence of ids, and ValueError if ``state`` is of several hypotheses.
        """
        if state is not None and len(state.recurrent[0]) != 1:
            raise ValueError(f"the state is of {len(state.recurrent[0])} hypotheses: expected one, as `after` returns it")
        state = self.start() if state is None else state
        for words in sentences:
            try:
                ids = [self.eos, *map(index, words)]
            except TypeError:
                raise TypeError(f"a sentence is {words!r:.60}: expected ids, such as lm.vocabulary.ids(['a', 'sentence'])") from None
            state = self.trained.carried.of(self.read(state, torch.tensor([ids])), self.model)
        return self.select(state, torch.tensor([0]))  # a copy: a truncated memory is a view of the longer one

    @torch.no_grad()  # not inference_mode: the decoder may change the resulting tensors in place
    @full_float32()
    def step(self, states: LanguageModelState, tokens: Tensor) -> tuple[Tensor, LanguageModelState]:
        """Read the last token (N,) of each hypothesis; return natural-log probabilities (N, V) of the next and the new states.

        Raises:
            TypeError: ``states`` are not states, or ``tokens`` not a tensor of whole numbers.
            ValueError: the states have other sizes than this model's, or there is not one token for each of them.
            IndexError: a token is not one of ``vocabulary`` (on a GPU, where finding out would force a wait, CUDA's own error).
        """
        tokens = self._checked(states, tokens).to(self.device)
        if self.device.type == "cpu":  # project each distinct word once; on a GPU, counting them would force a wait
            words, places = tokens.unique(return_inverse=True)
            self._require_known(words)
            inputs = self.stepping.inputs(words).select(places)
        else:
            inputs = self.stepping.inputs(tokens)
        features, read, states = self.stepping.step_features(inputs, states)
        return self.stepping.output.log_probs(features, read), states

    @torch.no_grad()
    @full_float32()
    def read(self, states: LanguageModelState, tokens: Tensor) -> LanguageModelState:
        """Return the states of N hypotheses after T > 0 more tokens (N, T), equal to those of T steps except for rounding.

        No distributions are computed. The result shares no memory with ``states``. In lower precision the tokens are read one by one.

        Raises:
            TypeError, ValueError, IndexError: as ``step``.
        """
        _require_whole_numbers("tokens", tokens, "ids, such as torch.tensor([[3, 7]])")
        if tokens.dim() != 2 or not tokens.size(1):
            raise ValueError(f"found tokens of shape {'x'.join(map(str, tokens.shape))}: expected at least one for each hypothesis, (N, T)")
        self._checked(states, tokens[:, 0])
        tokens = tokens.to(self.device)
        if self.device.type == "cpu" and tokens.numel():
            self._require_known(tokens.aminmax())
        if self.precision == "float32":
            states = self.model.state_after(tokens, states)
        else:
            for column in tokens.unbind(1):
                _, _, states = self.stepping.step_features(self.stepping.inputs(column), states)
        return self.select(states, torch.arange(len(tokens)))  # a copy: a view of a window would keep the longer memory alive

    def select(self, states: LanguageModelState, rows: Tensor) -> LanguageModelState:
        """Return copies of the given rows (N,) in this order; rows may be repeated. Raises TypeError if they are no whole numbers."""
        _require_whole_numbers("rows", rows, "row numbers, such as torch.tensor([0, 0, 3])")
        return states.select(rows.to(self.device))

    def _require_known(self, words: Sequence[Tensor] | Tensor) -> None:
        """Raise IndexError for sorted ids (the least and the greatest will do) of which one is not in the vocabulary."""
        if len(words) and not (int(words[0]) >= 0 and int(words[-1]) < len(self.vocabulary)):
            wrong = int(words[0] if words[0] < 0 else words[-1])
            raise IndexError(f"token {wrong}: expected 0 to {len(self.vocabulary) - 1}, the ids of lm.vocabulary")

    def _checked(self, states: LanguageModelState, tokens: Tensor) -> Tensor:
        """Return the tokens; raises as ``step`` does."""
        if not isinstance(states, LanguageModelState):
            raise TypeError(f"the states are a {type(states).__name__}: expected those that start, step or select of this LM returned")
        _require_whole_numbers("tokens", tokens, "ids, such as torch.tensor([3, 7])")
        if states.layout != self._layout:
            raise ValueError("the states have other sizes than those of this LM: are they of another model?")
        if tokens.shape != states.recurrent[0].shape[:1]:
            shape = "x".join(map(str, tokens.shape))
            raise ValueError(f"found tokens of shape {shape} for {len(states.recurrent[0])} hypotheses: expected the last token of each")
        return tokens

    def join(self, states: Sequence[LanguageModelState]) -> LanguageModelState:
        """Return one batched state with all rows of the given states, in order.

        The memories of ``combined`` and ``dot`` attention, AMSRN, LSTMN and (up to their windows) KVP and the pointer
        have one slot per word read. They must have equal lengths, since padding them would require a mask that no other
        use needs. ``step_each`` joins states of equal length only.

        Raises:
            ValueError: the lengths differ.
        """
        return LanguageModelState.cat(states)

    def step_each(self, states: Sequence[LanguageModelState], tokens: Sequence[int]) -> tuple[Tensor, list[LanguageModelState]]:
        """Step N hypotheses that have separate states of one row each, with memories of any lengths.

        Hypotheses with memories of equal length are computed in one batch.

        Args:
            states: N states of one row.
            tokens: the last token of each hypothesis.

        Returns:
            Natural-log probabilities (N, V) of the next token, and N new states of one row. Each new state owns its tensors,
            so keeping it keeps no other state alive.

        Raises:
            ValueError: there are no states, or not one token for each; else as ``step``.
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


def _require_whole_numbers(what: str, value: object, expected: str) -> None:
    """Raise TypeError, which says ``what`` the value is, unless it is a tensor of int64 or int32."""
    if not isinstance(value, Tensor) or value.dtype not in (torch.int64, torch.int32):
        found = f"a tensor of {value.dtype}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise TypeError(f"the {what} are {found}: expected a tensor of {expected}")
