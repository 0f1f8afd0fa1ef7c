"""Dropout in training: of values at three places in the model, of whole words and of recurrent weights.

Shapes: B rows of the batch, T positions, F numbers of a position, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from attlm_fairseq.modules.kernels.dropout import dropout

PLACES = ("dropout_in", "dropout_between", "dropout_out", "dropout_latent")  # the option `dropout` is the default of each


@dataclass(frozen=True)
class Regularisation:
    """Dropout probabilities. Kept values are divided by the probability of keeping them, so expected values do not change.

    With ``locked``, dropout of values draws one mask per row of a batch and applies it to all positions. This is the
    variational dropout of Gal and Ghahramani (2016), as Merity, Keskar and Socher (2018) use it. ``dropout_words`` and
    ``weight_drop`` come from these papers too. In evaluation nothing is dropped.
    """

    dropout_in: float = 0.0  # of the embeddings
    dropout_between: float = 0.0  # between the layers of the recurrence
    dropout_out: float = 0.0  # of the features
    dropout_latent: float = 0.0  # within a mixture of softmaxes, whose output layer applies it
    dropout_words: float = 0.0  # of whole words: all embeddings of a word in a batch, or none
    weight_drop: float = 0.0  # of the elements of the recurrent matrices, one mask for all positions
    locked: bool = False  # one mask for all positions of a row

    @classmethod
    def from_config(cls, options: Mapping[str, Any]) -> Regularisation:
        """Read the options of a model, named as on fairseq-train's command line.

        Checkpoints of earlier versions lack some of the options; then their defaults apply.

        Raises:
            ValueError: a value is not a probability, or 1, with which nothing would be kept.
        """
        of_values = {name: options["dropout"] if options.get(name) is None else options[name] for name in PLACES}
        of_weights = {name: options.get(name, 0.0) for name in ("dropout_words", "weight_drop")}
        for name, probability in {**of_values, **of_weights}.items():
            if not 0 <= probability < 1:  # nan fails this test too
                given = "dropout" if name in PLACES and options.get(name) is None else name
                raise ValueError(f"--{given.replace('_', '-')} {probability}: expected a probability below 1")
        return cls(**of_values, **of_weights, locked=bool(options.get("locked_dropout", False)))

    @property
    def needs_layers(self) -> bool:
        """Whether layers must be computed one by one. torch's call for all layers supports only dropout of single values."""
        return self.locked or self.weight_drop > 0

    def drop(self, values: Tensor, probability: float, training: bool) -> Tensor:
        """Apply dropout to values (B, T, F), or (B, F) of one position."""
        if not (self.locked and training and probability):
            return dropout(values, probability, training)
        mask = values.new_ones(len(values), *[1] * (values.dim() - 2), values.size(-1))
        return values * dropout(mask, probability, training)

    def drop_words(self, embedded: Tensor, tokens: Tensor, vocabulary_size: int, training: bool) -> Tensor:
        """Apply dropout to whole words: all embeddings (.., F) of a dropped word are 0, at every position of ``tokens`` (..)."""
        if not (training and self.dropout_words):
            return embedded
        mask = dropout(embedded.new_ones(vocabulary_size), self.dropout_words, training)
        return embedded * mask[tokens].unsqueeze(-1)

    def drop_weights(self, recurrent: Tensor, training: bool) -> Tensor:
        """Apply dropout to the elements of a recurrent matrix (.., H)."""
        return dropout(recurrent, self.weight_drop, training) if training and self.weight_drop else recurrent


NOTHING_LEFT_OUT = Regularisation()
