"""From what fairseq-train wrote to a model: checkpoints, exported folders, the vocabulary, initialisation."""
