"""Tables of hypotheses with a header: their columns, their rows, and how they are written."""
