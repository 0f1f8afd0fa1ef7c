"""Finding weights."""
