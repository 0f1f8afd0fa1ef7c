"""What parts of a model do to their biases when the model is initialised."""

from __future__ import annotations


class BiasesStartAtZero:
    """Base of the recurrences and readers whose biases all start at 0."""

    def initialise_biases(self) -> None:
        """Change nothing: ``LanguageModel.initialise`` has set the biases to 0."""
