"""What a model reads: the attention weights of earlier states in each prediction."""
