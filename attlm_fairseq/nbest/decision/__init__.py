"""Choose one output for each list from its scored hypotheses."""
