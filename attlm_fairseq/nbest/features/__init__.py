"""The named numbers of a hypothesis, and their weighted sum."""
