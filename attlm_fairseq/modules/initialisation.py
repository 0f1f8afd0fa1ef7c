"""What parts of a model do to their own parameters when the model is initialised."""

from __future__ import annotations


class BiasesStartAtZero:
    """Base of the recurrences, readers and output layers whose biases start at 0 and whose other parameters are drawn."""

    def initialise_biases(self) -> None:
        """Change nothing: ``LanguageModel.initialise`` has set and drawn all parameters."""
