"""From scored hypotheses to one output for each list."""
