"""Evaluate systems: scores, intervals and significance."""
