"""Find weights."""
