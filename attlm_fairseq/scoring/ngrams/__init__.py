"""KenLM's n-gram models as scorers, their files and programs."""
