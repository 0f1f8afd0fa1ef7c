"""Words that an LM does not know: their score, and warnings of them."""
