"""Word lattices of Kaldi and HTK, and the n-best lists that they hold."""
