"""Seeing what the memory of a model does: which earlier states it reads for each prediction."""
