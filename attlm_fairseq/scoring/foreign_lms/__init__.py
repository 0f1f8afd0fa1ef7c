"""LMs of fairseq and Hugging Face as scorers."""
