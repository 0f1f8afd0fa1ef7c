"""Translation models as scorers of hypotheses."""
