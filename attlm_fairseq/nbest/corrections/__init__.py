"""Candidates that are in no list: learned from lists with references, found by a search with an n-gram LM."""

from attlm_fairseq.nbest.corrections.corrections import Corrections, learn_corrections

__all__ = ["Corrections", "learn_corrections"]
