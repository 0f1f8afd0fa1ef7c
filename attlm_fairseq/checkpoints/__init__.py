"""Checkpoints of fairseq-train, exported folders, vocabularies and initialisation of models."""
