"""fairseq criterions. fairseq does not look here by itself: :mod:`attlm_fairseq.plugin` imports them."""
