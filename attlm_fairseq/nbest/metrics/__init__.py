"""Corpus metrics with additive statistics."""
