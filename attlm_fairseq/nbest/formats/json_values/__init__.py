"""JSON values and texts, as several formats share them: where an utterance has its hypotheses, and what rescoring changes."""
