"""Dynamic evaluation (Krause, Kahembwe, Murray and Renals 2018): an LM learns from each sentence after scoring it.

    u = g / (s + EPSILON),    s = sqrt(mean of g^2)
    theta <- theta - rate u / max(1, rms(u)) + min(1, decay s / mean(s)) (theta_0 - theta)

``g`` is the gradient of a sentence's negative log-probability, summed over words and sentence end; the state before the
sentence is a constant. ``theta_0`` are the trained weights, with which every conversation begins. The mean is over the
sentences of a text, see ``gradient_scales``. ``rms(u)`` is the root mean square over all weights of the model. The paper
does not divide by it. It limits the step after a gradient larger than those of that text; without it, steps could grow
from sentence to sentence. A memory keeps what earlier weights have written to it.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from attlm_fairseq.checkpoints.reading import TrainedModel
from attlm_fairseq.checkpoints.vocabulary import EOS, UNK
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.hashes import sha256
from attlm_fairseq.files.writing import whole_file
from attlm_fairseq.modules.kernels.torch_settings import full_float32, without_cudnn
from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.modules.state import LanguageModelState
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer
from attlm_fairseq.scoring.scorer import Scorer, Sentence, SentenceScore, Walked

EPSILON = 1e-5
PART = 2**16  # weights
EXPECTED = "expected a file that `attlm fit --find adaptation` wrote for this LM"
Scales = Mapping[str, Tensor]
"""``s`` of each parameter of a model."""


@dataclass(frozen=True)
class Adaptation:
    """Settings of dynamic evaluation.

    Attributes:
        rate: the learning rate.
        decay: the pull towards the trained weights.
        scales: one per model of the LM.
        weights: ``weights_digest`` of the LM that they were found for.
        source: its entry in the signature.
    """

    rate: float
    decay: float
    scales: tuple[Scales, ...]
    weights: str = ""
    source: str = ""

    @cached_property
    def mean_scales(self) -> list[float]:
        """The mean of ``s`` over all weights of each model."""
        return [float(torch.cat([scale.flatten() for scale in scales.values()]).mean(dtype=torch.float64)) for scales in self.scales]

    def update(self, model: LanguageModel, trained: LanguageModel, gradients: Mapping[str, Tensor], place: int) -> None:
        """Update the model, in place, on a sentence.

        Args:
            model: the model to update.
            trained: the model as it was trained.
            gradients: those of ``read_sentence``; they are overwritten.
            place: the index of the model in the LM.
        """
        scales, origins, parameters = self.scales[place], dict(trained.named_parameters()), dict(model.named_parameters())
        steps = {name: gradient.contiguous() for name, gradient in gradients.items()}  # the other parameters are constants
        squares = 0.0
        for name, step in steps.items():
            for of_step, scale in zip(_parts(step), _parts(scales[name]), strict=True):
                squares += float(torch.linalg.vector_norm(of_step.div_(scale + EPSILON))) ** 2
        rate = self.rate / max(1.0, math.sqrt(squares / sum(step.numel() for step in steps.values())))
        pull = self.decay / self.mean_scales[place]
        with torch.no_grad():
            for name, step in steps.items():
                tensors = (parameters[name], step, scales[name], origins[name])
                for weights, of_step, scale, origin in zip(*map(_parts, tensors), strict=True):
                    pulled = (scale * pull).clamp_(max=1.0).mul_(origin - weights)
                    weights.sub_(of_step, alpha=rate).add_(pulled)


def _parts(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the tensor's weights, on a CPU in parts so small that what is computed from them stays in its cache."""
    weights = tensor.detach().view(-1)
    return weights.split(PART) if weights.is_cpu else (weights,)


class SentenceRead(NamedTuple):
    """What a model makes of a sentence of E - 1 words.

    Attributes:
        log_probs: natural-log probabilities (E,) of the words and ``</s>``.
        features: those of the output layer (E, F).
        state: the state after the last word, one row.
        gradients: of the sum of ``-log_probs``, by parameter name.
    """

    log_probs: np.ndarray
    features: np.ndarray
    state: LanguageModelState
    gradients: dict[str, Tensor]


def read_sentence(model: LanguageModel, tokens: Sequence[int], state: LanguageModelState) -> SentenceRead:
    """Read a sentence after ``state`` (one row), forwards and backwards."""
    device = model.embedding.weight.device
    names = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    with torch.inference_mode(False), torch.enable_grad(), without_cudnn(), full_float32():
        inputs = torch.tensor([[EOS, *tokens]], device=device)
        features, read, after = model.read(inputs, state.map(Tensor.clone))
        events = read and read.at(torch.ones_like(inputs, dtype=torch.bool))
        log_probs = model.output.log_probs_of(features[0], torch.tensor([*tokens, EOS], device=device), events)
        found = torch.autograd.grad(-log_probs.sum(), list(names.values()), materialize_grads=True)
    values, of_events = (part.detach().cpu().numpy() for part in (log_probs.double(), features[0]))
    return SentenceRead(values, of_events, after.detach().without_unused_slots(), dict(zip(names, found, strict=True)))


class AdaptingScorer(Scorer):
    """A neural LM under dynamic evaluation: ``after`` returns the LM updated on each sentence of the history in turn.

    Each history has weights of its own, so histories are scored one by one.
    """

    def __init__(self, scorer: Scorer, adaptation: Adaptation, carries: bool = True, trained: NeuralScorer | None = None) -> None:
        """Adapt ``scorer``. ``carries``: also carry the state over sentences. ``trained``: the LM as trained, default ``scorer``.

        Raises InputError for an LM that cannot learn: one of another program, or with products in bfloat16.
        """
        check_adaptable(scorer)
        self.name = scorer.name
        self.members = (scorer,)
        self.lm = cast(NeuralScorer, scorer)
        self.adaptation = adaptation
        self.carries = carries
        self.trained = trained or self.lm
        if len(adaptation.scales) != len(self.lm.models):
            raise InputError(f"{self.name}: what `attlm fit` found is of {len(adaptation.scales)} models, the LM has {len(self.lm.models)}")

    def score(self, sentences: Sequence[Sentence]) -> list[SentenceScore]:
        return self.lm.score(sentences)

    def score_with_features(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]]) -> list[list[tuple[SentenceScore, np.ndarray]]]:
        return [cast(AdaptingScorer, scorer).lm.score_with_features([(scorer.members[0], sentences)])[0] for scorer, sentences in requests]

    def after(self, history: Sequence[Sentence]) -> Scorer:
        return self._walked(history, features=False).later

    def walk(self, requests: Sequence[tuple[Scorer, Sequence[Sentence]]], features: bool = False) -> list[Walked]:
        """See ``Scorer.walk``. A sentence is read once: its scores, its gradients and the state after it are found together."""
        return [cast(AdaptingScorer, scorer)._walked(sentences, features) for scorer, sentences in requests]

    def _walked(self, sentences: Sequence[Sentence], features: bool) -> Walked:
        walked = Walked([], [], self)
        lm = self.lm
        models: list[TrainedModel] = []
        for words in sentences:
            tokens = lm.vocabulary.ids(words)
            read = [read_sentence(member.model, tokens, state) for member, state in zip(lm.models, lm.states(), strict=True)]
            log_probs = lm.averaged([of_model.log_probs for of_model in read])
            walked.scores.append(SentenceScore(tuple(log_probs.tolist()), tuple(token == UNK for token in tokens)))
            walked.features.append(np.concatenate([of_model.features for of_model in read], axis=1)[:, : None if features else 0])
            if self.carries:  # the state of the weights before the update
                lm = lm.later([EOS, *tokens], [of_model.state for of_model in read])
            with torch.inference_mode(False), torch.no_grad():  # weights of inference mode would have no gradients
                if not models:  # those of this LM belong to others, too
                    models = [replace(member, model=copy.deepcopy(member.model)) for member in self.lm.models]
                for place, (member, trained, of_model) in enumerate(zip(models, self.trained.models, read, strict=True)):
                    self.adaptation.update(member.model, trained.model, of_model.gradients, place)
            lm = lm.with_models(models)
        if models:
            walked.later = AdaptingScorer(lm, self.adaptation, self.carries, self.trained)
        return walked

    def signature(self) -> dict[str, object]:
        adapts = {"rate": self.adaptation.rate, "decay": self.adaptation.decay, "scales": self.adaptation.source}
        return self.trained.signature() | {"dynamic evaluation": adapts, "carries": self.carries}


def gradient_scales(lm: NeuralScorer, documents: Iterable[Iterable[Sentence]], carries: bool = True) -> tuple[Scales, ...]:
    """Return ``s`` for each model of the LM: the root mean square of the gradients over the sentences of the documents.

    ``s`` is at least the mean of its matrix or vector. Otherwise weights without a gradient, such as embeddings of words
    that do not occur, would take steps of unlimited size.
    """
    squares = [
        {name: torch.zeros_like(part) for name, part in member.model.named_parameters() if part.requires_grad} for member in lm.models
    ]
    count = 0
    for document in documents:
        later = lm
        for words in document:
            for member, state, of_model in zip(lm.models, later.states(), squares, strict=True):
                for name, gradient in read_sentence(member.model, lm.vocabulary.ids(words), state).gradients.items():
                    of_model[name].addcmul_(gradient, gradient)
            later = cast(NeuralScorer, later.after([words])) if carries else later
            count += 1
    roots = [{name: (square.detach() / max(1, count)).sqrt_() for name, square in of_model.items()} for of_model in squares]
    return tuple({name: root.clamp_(min=float(root.mean())) for name, root in of_model.items()} for of_model in roots)


def weights_digest(lm: NeuralScorer) -> str:
    """Return a SHA-256 over all weights of the LM's models."""
    digest = hashlib.sha256()
    for member in lm.models:
        for name, weights in member.model.named_parameters():
            digest.update(name.encode())
            digest.update(weights.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()


def write_adaptation(path: Path, adaptation: Adaptation) -> None:
    """Write rate, decay and scales as a safetensors file.

    Raises:
        InputError: the file cannot be written.
    """
    from safetensors.torch import save

    tensors = {f"{place} {name}": scale.contiguous() for place, scales in enumerate(adaptation.scales) for name, scale in scales.items()}
    metadata = {"attlm": "dynamic evaluation", "rate": repr(adaptation.rate), "decay": repr(adaptation.decay)}
    metadata["weights"] = adaptation.weights
    with whole_file(str(path)) as file:
        file.buffer.write(save(tensors, metadata=metadata))


def read_adaptation(path: Path, lm: NeuralScorer) -> Adaptation:
    """Read what ``write_adaptation`` has written for this LM.

    Raises:
        InputError: the file cannot be read, is not what ``write_adaptation`` wrote or was found for another LM, or rate,
            decay or a scale is negative or not finite, or all scales of a model are 0.
    """
    metadata, tensors = _read_tensors(path, lm)
    try:
        rate, decay, weights = float(metadata["rate"]), float(metadata["decay"]), metadata["weights"]
    except (KeyError, ValueError) as error:
        raise InputError(f"cannot be read ({error}); {EXPECTED}", path=path) from None
    if weights != weights_digest(lm):
        raise InputError(
            f"was found for other weights or another temperature than those of {lm.name}: run `attlm fit --find adaptation` for it",
            path=path,
        )
    if not (0 <= rate < math.inf and 0 <= decay < math.inf):
        raise InputError(f"has rate {rate:g} and decay {decay:g}, which must be finite and not negative; {EXPECTED}", path=path)
    scales = tuple(_take_scales(tensors, place, lm, path) for place in range(len(lm.models)))
    if tensors:
        raise InputError(f"has scales of {min(tensors)}, which is not in the LM {lm.name}; {EXPECTED}", path=path)
    return Adaptation(rate, decay, scales, weights, sha256(path))


def _read_tensors(path: Path, lm: NeuralScorer) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the metadata and the tensors of a file. Raises InputError if it cannot be read or is of something else."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt", device=lm.compute.device) as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
    except FileNotFoundError:
        raise InputError(f"there is no such file; {EXPECTED}", path=path) from None
    except (SafetensorError, OSError) as error:
        raise InputError(f"cannot be read ({error}); {EXPECTED}", path=path) from None
    if metadata.get("attlm") != "dynamic evaluation":
        raise InputError(EXPECTED, path=path)
    return metadata, tensors


def _take_scales(tensors: dict[str, Tensor], place: int, lm: NeuralScorer, path: Path) -> dict[str, Tensor]:
    """Take out of ``tensors`` the scales of one model of the LM. Raises InputError if one is missing or does not fit, or all are 0."""
    scales = {}
    for name, parameter in lm.models[place].model.named_parameters():
        scale = tensors.pop(f"{place} {name}", None)
        if scale is not None and (scale.shape != parameter.shape or not (scale.isfinite() & (scale >= 0)).all()):
            raise InputError(f"its {name} does not fit the LM {lm.name}; {EXPECTED}", path=path)
        if scale is None and parameter.requires_grad:
            raise InputError(f"has nothing for {name} of the LM {lm.name}; {EXPECTED}", path=path)
        if scale is not None:
            scales[name] = scale
    if not any(scale.any() for scale in scales.values()):
        raise InputError(f"all its gradient scales are 0; {EXPECTED}", path=path)
    return scales


def adapting_scorer(scorer: Scorer, path: Path, carries: bool = True) -> AdaptingScorer:
    """Return an LM under dynamic evaluation with the settings in a file of ``write_adaptation``.

    Raises:
        InputError: the LM cannot learn (see ``check_adaptable``), or as in ``read_adaptation``.
    """
    check_adaptable(scorer)
    return AdaptingScorer(scorer, read_adaptation(path, cast(NeuralScorer, scorer)), carries)


def check_adaptable(scorer: Scorer) -> None:
    """Raise InputError for an LM that cannot learn: one of another program, or with products in bfloat16."""
    if scorer.signature().get("kind") != "neural" or scorer.signature().get("precision") != "float32":
        raise InputError(f"{scorer.name}: dynamic evaluation is for this package's neural LMs with --precision float32")
