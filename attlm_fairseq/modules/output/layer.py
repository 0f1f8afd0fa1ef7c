"""The OutputLayer contract: from features to the probabilities of the next word.

Shapes: N predictions, E events, F features, V vocabulary, M columns of a reader's weights. All logarithms are natural.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Protocol

from torch import Tensor, nn

from attlm_fairseq.modules.kernels.linear_nll import Loss, LossTerms
from attlm_fairseq.modules.kernels.low_precision import MakeLinear
from attlm_fairseq.modules.kernels.softmax_events import no_check
from attlm_fairseq.modules.memory.reader import Read


class OutputLayer(Protocol):
    """Computes a distribution over V words for each prediction.

    ``read`` is what the memory reader has read for the same predictions. Layers that give probability to words in the
    memory (pointers, caches) set ``needs_read`` and always get it. Other layers may get None.
    """

    needs_read: ClassVar[bool]
    vector_size: int  # size of a word's vector; embeddings of this size can be tied to the layer

    @property
    def bias(self) -> Tensor:
        """The biases. They are initialised to the log unigram distribution, see ``init_bias``."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """See ``nn.Module.parameters``; every output layer is an ``nn.Module``."""
        ...

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """See ``nn.Module.register_parameter``. The model ties a layer's ``weight`` to its embeddings with it."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """See ``nn.Module.state_dict``."""
        ...

    def __call__(self, features: Tensor, read: Read | None = None) -> Tensor:
        """Return logits (.., V) for features (.., F). Their ``log_softmax`` is the log-probabilities."""
        ...

    def log_probs(self, features: Tensor, read: Read | None = None) -> Tensor:
        """Return log-probabilities (.., V) for features (.., F), computed at least in float32."""
        ...

    def log_probs_of(self, features: Tensor, targets: Tensor, read: Read | None = None) -> Tensor:
        """Return the log-probabilities (N,) of the target words (N,), given features (N, F)."""
        ...

    def nll(self, features: Tensor, targets: Tensor, read: Read | None = None) -> Tensor:
        """Return the sum of the targets' negative log-probabilities, a differentiable scalar.

        Args:
            features: (N, F).
            targets: the words (N,). All of them count.
            read: see the class.
        """
        ...

    def loss(self, features: Tensor, targets: Tensor, read: Read | None, terms: LossTerms, counted: Tensor | None = None) -> Loss:
        """Return ``nll`` and the additional training terms.

        ``counted`` (B, T) says at which positions of the batch the N predictions are, row by row. Locked dropout needs it.

        Raises:
            ValueError: a term is not 0, but the layer does not support it.
        """
        ...

    def initialise_biases(self) -> None:
        """Set the parameters that start at other values than ``LanguageModel.initialise`` draws, such as a temperature at 1."""
        ...

    def init_bias(self, log_probs: Tensor) -> None:
        """Set the biases so that features of zero predict the distribution ``log_probs`` (V,) as well as the layer can."""
        ...

    def with_temperature(self, temperature: float) -> OutputLayer:
        """Return a layer whose logits are divided by ``temperature``. This layer and tied embeddings do not change."""
        ...

    def events(self, rounded: Callable[[Tensor], Tensor] | None = None, normaliser: str = "exact") -> EventLogProbs:
        """Return a function that scores single words in shared contexts.

        Args:
            rounded: converts a matrix to a lower precision; None keeps the precision of the weights.
            normaliser: ``exact``, ``sampled`` or ``none``, see ``softmax_events``.

        Raises:
            ValueError: the layer has no single normaliser that could be left out.
        """
        ...

    def steps(self, make: MakeLinear) -> StepOutput:
        """Return a layer for decoders whose products are computed by layers that ``make`` makes."""
        ...


class StepOutput(Protocol):
    """The part of an output layer that decoders use."""

    needs_read: ClassVar[bool]

    def log_probs(self, features: Tensor, read: Read | None = None) -> Tensor:
        """See ``OutputLayer.log_probs``."""
        ...


class EventLogProbs(Protocol):
    """Computes log-probabilities of single words, the softmax normaliser once per context. It has no gradients."""

    def __call__(
        self, features: Tensor, contexts: Tensor, words: Tensor, check: Callable[[], None] = no_check, read: Read | None = None
    ) -> Tensor:
        """Return ``ln p(words[e] | features[contexts[e]])`` for each of E events.

        Args:
            features: (N, F), one row per context.
            contexts: the row of ``features`` of each event, (E,).
            words: the word of each event, (E,).
            check: called between pieces of the work. It may raise an exception to stop the computation.
            read: what the reader has read in each context, weights (N, M); only layers that need it get it.
        """
        ...
