"""Reference texts and the lists they belong to."""
