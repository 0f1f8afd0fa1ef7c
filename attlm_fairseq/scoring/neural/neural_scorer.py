"""Scoring with the package's neural language models: every distinct prefix of all sentences is computed once.

Shapes: T events of a sentence, F features, E events.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import torch

from attlm_fairseq.checkpoints.reading import TrainedModel, load_model
from attlm_fairseq.checkpoints.vocabulary import EOS, UNK, fingerprint
from attlm_fairseq.errors import InputError
from attlm_fairseq.modules.kernels.torch_settings import full_float32
from attlm_fairseq.modules.state import EVERYTHING, Carried, LanguageModelState
from attlm_fairseq.numeric import ceil_div
from attlm_fairseq.scoring.compute import DEFAULT_DEVICE, EXACT, SMALLEST_MEMORY, Arithmetic, DeviceConfig
from attlm_fairseq.scoring.deviation import SAMPLE_SENTENCES, Deviation, measured_on
from attlm_fairseq.scoring.neural.scoring_models import Bfloat16Model, Float32Model, ScoringModel
from attlm_fairseq.scoring.neural.sequences import ReadSequence, read_sequences
from attlm_fairseq.scoring.neural.threads import side_by_side
from attlm_fairseq.scoring.neural.tree_scoring import event_log_probs
from attlm_fairseq.scoring.prefix_tree import build_prefix_tree
from attlm_fairseq.scoring.scorer import Scorer, Sentence, SentenceScore, Walked
from attlm_fairseq.scoring.tree_memory import ForestMemory, TreeMemory, split_evenly, split_into_blocks

PART_NODES = 256  # the smallest number of nodes for which a separate thread pays off
MAX_ERROR_OF_A_WORD = 0.1  # nats per word: with larger ones an LM is not self-normalised
OTHER_BYTES = 48 << 20  # memory reserved for logits and gathered weights

NO_FEATURES = np.empty((0, 0), dtype=np.float32)


class Events(NamedTuple):
    """The T events of a sentence: ln p of each, and the features (T, F) from which they are predicted."""

    log_probs: tuple[float, ...]
    features: np.ndarray


class NeuralScorer(Scorer):
    """A model, or an ensemble of models with one vocabulary, as a Scorer.

    The probability of an event in an ensemble is the weighted mean of its members' probabilities. A word outside the
    vocabulary is scored as ``<unk>``, whose probability is that of all unknown words together.

    With the precision ``bfloat16``, factors and results of matrix products are rounded. Gates, cells, memories, features, the
    logits of scored events and all sums stay in float32.

    Attributes:
        deviation: how much precision and normaliser changed the scores of the first sentences; None if nothing was measured.
        temperature: the temperature of the models' output layers.
    """

    def __init__(
        self,
        models: Sequence[TrainedModel],
        name: str = "lm",
        weights: Sequence[float] | None = None,
        compute: DeviceConfig = DEFAULT_DEVICE,
    ) -> None:
        """Combine models.

        Args:
            models: the models.
            name: the name of the LM's score.
            weights: weights of an ensemble, which are divided by their sum; None for equal weights.
            compute: device, precision, normaliser and memory.

        Raises:
            InputError: the vocabularies differ.
        """
        for other in models[1:]:
            if other.vocabulary != models[0].vocabulary:
                raise InputError(
                    f"its dictionary is not that of {models[0].path}; models of an ensemble share one: make it a second --lm",
                    path=other.path,
                )
        weights = [1.0] * len(models) if weights is None else list(weights)
        if len(weights) != len(models) or min(weights) < 0 or not sum(weights) > 0:
            raise ValueError(f"{len(models)} models need as many weights, none negative, not all zero: {weights}")
        self.name = name
        self.models = tuple(models)
        self.vocabulary = models[0].vocabulary
        self.log_weights = [math.log(weight / sum(weights)) if weight else -math.inf for weight in weights]
        self.compute = compute
        self.tree_memory = TreeMemory([member.model for member in models])
        self.deviation: Deviation | None = None
        self._sentences = 0  # in the history
        self._carried_over = 0  # sentences, at most, that this scorer and those after other histories have read before a sentence
        self.temperature = 1.0
        self._history: tuple[Sequence[int], ...] = ()  # what was read at a time: </s> and the words of each sentence
        self._before: dict[Arithmetic, list[LanguageModelState]] = {}  # the state of each model after the history
        self._scoring: dict[Arithmetic, list[ScoringModel]] = {}  # shared with the scorers after other histories

    @classmethod
    def load(
        cls,
        checkpoints: Sequence[Path],
        name: str = "lm",
        weights: Sequence[float] | None = None,
        dictionary: Path | None = None,
        compute: DeviceConfig = DEFAULT_DEVICE,
    ) -> NeuralScorer:
        """Load the checkpoints of an ensemble, or of one model.

        Raises:
            InputError: a file is not a model of this package, its dictionary is missing or does not fit, its weights
                are not finite, or the vocabularies differ.
            ValueError: there are not as many weights as checkpoints, or one is negative, or all are 0.
        """
        return cls([load_model(path, dictionary, compute.device) for path in checkpoints], name, weights, compute)

    def with_temperature(self, temperature: float) -> NeuralScorer:
        if temperature == self.temperature:  # a tied output matrix stays tied
            return self
        outputs = [member.model.output.with_temperature(temperature / self.temperature) for member in self.models]
        models = [replace(old, model=old.model.with_output(new)) for old, new in zip(self.models, outputs, strict=True)]
        scorer = NeuralScorer(models, self.name, list(map(math.exp, self.log_weights)), self.compute)
        scorer.temperature, scorer._history, scorer._sentences = temperature, self._history, self._sentences
        return scorer

    def signature(self) -> dict[str, object]:
        return {
            "kind": "neural",
            "checkpoints": [str(member.path) for member in self.models],
            "architectures": [member.architecture for member in self.models],
            "sha256": [member.sha256 for member in self.models],
            "ensemble weights": [math.exp(weight) for weight in self.log_weights],
            "vocabulary": len(self.vocabulary),
            "dictionary": fingerprint(self.vocabulary.symbols),
            "OOV policy": "p(<unk>), one class for all unknown words",
            "precision": self.compute.precision,
            **({} if self.compute.normaliser == "exact" else {"normaliser": self.compute.normaliser}),
            **({} if self.temperature == 1.0 else {"temperature": self.temperature}),
            **({"memory slots": slots} if any(slots := [carried.slots for carried in self._carried]) else {}),
            **({} if all(kept := [carried.memory for carried in self._carried]) else {"memory kept between sentences": kept}),
        }

    def notes(self) -> list[str]:
        return [*self._notes_of_resets(), *self._notes_of_deviation()]

    def _notes_of_resets(self) -> list[str]:
        """Return a warning for each model that carried more in this run than in its training."""
        told = []
        for options in (member.task for member in self.models):
            segment, every = str(options.get("reset")) == "segment", int(options.get("reset_every") or 0)
            most = 0 if segment else every - 1 if every else self._carried_over
            if self._carried_over > most:
                trained = "--reset segment, which carries nothing" if segment else f"--reset-every {every}"
                told.append(
                    f"WARNING: {self.name} was trained with {trained}; here state and memory go on from sentence to sentence: "
                    f"compare with --context-sentences {most}, and with fairseq-eval-lm, which resets as the training did"
                )
        return list(dict.fromkeys(told))

    def _notes_of_deviation(self) -> list[str]:
        if not self.deviation:
            return []
        if self.compute.normaliser == "exact":
            return [f"{self.name}: {self.deviation}"]
        note = f"{self.name}: with --normaliser {self.compute.normaliser}, {self.deviation}"
        if self.deviation.mean * self.deviation.sentences <= MAX_ERROR_OF_A_WORD * self.deviation.words:
            return [note]
        advice = "train it with --self-normalisation 1, longer if it was, or leave --normaliser out"
        return [f"{note}. WARNING: so it is not self-normalised: {advice}"]

    def exact(self) -> NeuralScorer:
        """See ``Scorer.exact``. It has the same models and history."""
        if self.compute.normaliser == "exact":
            return self
        exact = copy.copy(self)
        exact.compute, exact.deviation = replace(self.compute, normaliser="exact"), None
        return exact

    def after(self, history: Sequence[Sentence]) -> Scorer:
        """Return the LM with state and memory after these sentences, each of which begins with ``</s>``.

        The task ``document_reset_lm`` trains on such streams of sentences. An LM that was trained with an empty memory at
        each sentence start has not seen such states. A memory without a limit grows with the history. At each sentence end,
        an LM trained with ``--memory-slots`` N keeps the newest N slots, and one trained with ``--reset memory`` none.
        """
        return self.after_many([(self, history)])[0]

    def after_many(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[Scorer]:
        return [walked.later for walked in self._walk(requests, events=False)]

    def walk(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]], features: bool = False) -> list[Walked]:
        """See ``Scorer.walk``. All sentences are known, so many positions are computed at once."""
        each = ceil_div(SAMPLE_SENTENCES, max(1, len(requests)))  # one text has one request
        firsts = {(place, *self.vocabulary.ids(words)) for place, (_, sentences) in enumerate(requests) for words in sentences[:each]}
        self._measure_deviation([cast(NeuralScorer, scorer) for scorer, _ in requests], sorted(firsts))
        return self._walk(requests, events=True, features=features)

    def _walk(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]], *, events: bool, features: bool = False) -> list[Walked]:
        """Do what ``walk`` does; without ``events``, without scores."""
        found = [Walked([], [], scorer) for scorer, _ in requests]
        for scorer, sentences in requests:  # what is read without scores is for the next sentence
            before = cast(NeuralScorer, scorer)._sentences
            self._carried_over = max(self._carried_over, before + len(sentences) - int(events))
        longest = max((len(sentences) for _, sentences in requests), default=0)
        # a limit of the memory holds at each sentence end: then sentences are read one by one
        limited = any(carried != EVERYTHING for carried in self._carried)
        stretches = [slice(number, number + 1) for number in range(longest)] if limited else [slice(None)]
        for stretch in stretches:
            going_on = [(walked, sentences[stretch]) for walked, (_, sentences) in zip(found, requests, strict=True) if sentences[stretch]]
            ids = [[self.vocabulary.ids(words) for words in sentences] for _, sentences in going_on]
            sequences = [[token for tokens in of_request for token in (EOS, *tokens)] for of_request in ids]
            of_models = self._read([cast(NeuralScorer, walked.later) for walked, _ in going_on], sequences, events)
            for (walked, _), of_request, sequence, read in zip(going_on, ids, sequences, of_models, strict=True):
                if events:
                    self._add_events(walked, of_request, read, features)
                walked.later = cast(NeuralScorer, walked.later).later(sequence, [of_model.state for of_model in read])
        return found

    def _add_events(self, walked: Walked, sentences: Sequence[Sequence[int]], read: Sequence[ReadSequence], features: bool) -> None:
        """Add what the models have read of consecutive sentences, given as tokens."""
        begins = np.cumsum([len(tokens) + 1 for tokens in sentences])[:-1]
        log_probs = self.averaged([of_model.log_probs for of_model in read])
        joined = np.concatenate([of_model.features for of_model in read], axis=1)[:, : None if features else 0]
        for tokens, of_sentence in zip(sentences, np.split(log_probs, begins), strict=True):
            walked.scores.append(SentenceScore(tuple(of_sentence.tolist()), tuple(token == UNK for token in tokens)))
        walked.features.extend(np.split(joined, begins))

    def averaged(self, log_probs: Sequence[np.ndarray]) -> np.ndarray:
        """Return ln of the weighted mean of the models' probabilities, given their logs (E,)."""
        return np.logaddexp.reduce([of_model + weight for of_model, weight in zip(log_probs, self.log_weights, strict=True)])

    def _read(self, scorers: Sequence[NeuralScorer], sequences: Sequence[Sequence[int]], events: bool) -> list[tuple[ReadSequence, ...]]:
        """Return what each model reads, for each scorer and its sequence of tokens."""
        arithmetic = self.compute.arithmetic
        of_models = [
            read_sequences(model, sequences, [scorer._states(arithmetic)[place] for scorer in scorers], events)
            for place, model in enumerate(self._models(arithmetic) if scorers else [])
        ]
        return list(zip(*of_models, strict=True))

    def _measure_deviation(self, scorers: Sequence[NeuralScorer], distinct: Sequence[tuple[int, ...]]) -> None:
        """Measure it once, on the first sentences. A sentence is the index of its scorer, followed by its tokens."""
        arithmetic = self.compute.arithmetic
        if arithmetic != EXACT and self.deviation is None and distinct:
            kinds = {"float32": EXACT, "as asked for": arithmetic}
            self.deviation = measured_on(distinct, lambda some, kind: self._log_probs(scorers, some, kinds[kind]), "as asked for")

    @property
    def _carried(self) -> list[Carried]:
        """What each model carries from sentence to sentence."""
        return [member.carried for member in self.models]

    def later(self, read: Sequence[int], states: Sequence[LanguageModelState]) -> NeuralScorer:
        """Return the LM after a sentence, read as the tokens ``[</s>, *words]``; ``states`` are the models' states after them."""
        later = copy.copy(self)
        later._history, later._sentences = (*self._history, read), self._sentences + list(read).count(EOS)
        later._before = {self.compute.arithmetic: self._carry(states, self._models(self.compute.arithmetic))}
        limits = [carried.limit for carried in self._carried]
        later.tree_memory = self.tree_memory.after(len(read), None if None in limits else max(filter(None, limits), default=0))
        return later

    def score(self, sentences: Sequence[Sentence]) -> list[SentenceScore]:
        return self.score_many([(self, sentences)])[0]

    def score_many(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[list[SentenceScore]]:
        return [[score for score, _ in found] for found in self._scored(requests, features=False)]

    def score_with_features(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[list[tuple[SentenceScore, np.ndarray]]]:
        """See ``Scorer.score_with_features``. An ensemble's features are the concatenated features of its models."""
        return self._scored(requests, features=True)

    def _scored(
        self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]], features: bool
    ) -> list[list[tuple[SentenceScore, np.ndarray]]]:
        scorers = [cast(NeuralScorer, scorer) for scorer, _ in requests]
        ids = [[(place, *self.vocabulary.ids(words)) for words in sentences] for place, (_, sentences) in enumerate(requests)]
        distinct = sorted({sentence for of_request in ids for sentence in of_request})
        if not distinct:
            return [[] for _ in requests]
        self._measure_deviation(scorers, distinct)
        found = self._events(scorers, distinct, self.compute.arithmetic, features)
        return [
            [(SentenceScore(found[one].log_probs, tuple(token == UNK for token in one[1:])), found[one].features) for one in of_request]
            for of_request in ids
        ]

    def _log_probs(
        self, scorers: Sequence[NeuralScorer], distinct: Sequence[tuple[int, ...]], arithmetic: Arithmetic
    ) -> dict[tuple[int, ...], tuple[float, ...]]:
        """Return only the log-probabilities of ``_events``."""
        return {sentence: events.log_probs for sentence, events in self._events(scorers, distinct, arithmetic, False).items()}

    def _events(
        self, scorers: Sequence[NeuralScorer], distinct: Sequence[tuple[int, ...]], arithmetic: Arithmetic, features: bool
    ) -> dict[tuple[int, ...], Events]:
        """Return ln p of each word and of ``</s>`` for each of the sorted sentences, with features if requested.

        A sentence is the index of the scorer with its history, followed by its tokens.
        """
        on_cpu = self.models[0].model.embedding.weight.device.type == "cpu"
        threads = torch.get_num_threads() if on_cpu else 1
        most = max(1, self.compute.memory // SMALLEST_MEMORY)
        counts = [count for count in range(1, min(threads, most) + 1) if threads % count == 0]  # divisors: no thread is idle
        parts = split_evenly(distinct, counts, PART_NODES)
        memory = self.compute.memory // len(parts)
        befores = [LanguageModelState.stack(states) for states in zip(*(scorer._states(arithmetic) for scorer in scorers), strict=True)]
        models = list(zip(self._models(arithmetic), befores, strict=True))
        tree_memory = ForestMemory(max((scorer.tree_memory for scorer in scorers), key=lambda tree: tree.words_before))
        found = side_by_side(lambda part, check: self._of_part(distinct[slice(*part)], models, tree_memory, memory, check, features), parts)
        return {sentence: values for of_part in found for sentence, values in of_part.items()}

    def states(self) -> list[LanguageModelState]:
        """Return the state of each model after the history, one row each."""
        return self._states(self.compute.arithmetic)

    @torch.inference_mode()
    @full_float32()
    def with_models(self, models: Sequence[TrainedModel]) -> NeuralScorer:
        """Return the LM with other models after the same history. The states and what was written to the memory do not change."""
        later = copy.copy(self)
        later.models = tuple(models)
        pairs = zip(models, self.states(), strict=True)
        states = [member.model.updated_state(state) for member, state in pairs]
        later._before = {self.compute.arithmetic: states}
        later._scoring = {}
        return later

    @torch.inference_mode()
    def _models(self, arithmetic: Arithmetic) -> list[ScoringModel]:
        """Return the models that compute in this way. Raises InputError if a model has no single normaliser to approximate."""
        if arithmetic not in self._scoring:
            kind = Bfloat16Model if arithmetic.precision == "bfloat16" else Float32Model
            try:
                self._scoring[arithmetic] = [kind(member.model, arithmetic.normaliser) for member in self.models]
            except ValueError as error:
                raise InputError(str(error), path=self.models[0].path) from None
        return self._scoring[arithmetic]

    def _states(self, arithmetic: Arithmetic) -> list[LanguageModelState]:
        """Return each model's state after the history."""
        if arithmetic not in self._before:
            models = self._models(arithmetic)
            with torch.inference_mode():
                states = [model.initial_state(1) for model in models]
            for read in self._history:
                after = [read_sequences(model, [read], [state], False)[0].state for model, state in zip(models, states, strict=True)]
                states = self._carry(after, models)
            self._before[arithmetic] = states
        return self._before[arithmetic]

    @torch.inference_mode()
    def _carry(self, states: Sequence[LanguageModelState], models: Sequence[ScoringModel]) -> list[LanguageModelState]:
        """Return what goes from the end of a sentence, with these states of the models, to the next one."""
        return [carried.of(state, model) for carried, state, model in zip(self._carried, states, models, strict=True)]

    @torch.inference_mode()
    @full_float32()
    def _of_part(
        self,
        distinct: Sequence[tuple[int, ...]],
        models: Sequence[tuple[ScoringModel, LanguageModelState]],
        tree_memory: ForestMemory,
        memory: int,
        check: Callable[[], None],
        features: bool,
    ) -> dict[tuple[int, ...], Events]:
        found: dict[tuple[int, ...], Events] = {}
        step_limit = memory // 8
        for begin, end in split_into_blocks(distinct, tree_memory, memory - step_limit - OTHER_BYTES):
            block = distinct[begin:end]
            tree = build_prefix_tree(block)
            ends = np.array([path[-1] for path in tree.paths])
            members = [event_log_probs(model, tree, ends, step_limit, check, before) for model, before in models]
            into_node, to_end = (
                np.logaddexp.reduce([values[kind] + weight for values, weight in zip(members, self.log_weights, strict=True)])
                for kind in (0, 1)
            )
            for sentence, path, last in zip(block, tree.paths, to_end, strict=True):
                states = np.concatenate([of_model[2][path] for of_model in members], axis=1) if features else NO_FEATURES
                found[sentence] = Events((*into_node[path[1:]].tolist(), float(last)), states)
        return found
