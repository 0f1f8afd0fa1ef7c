"""fairseq criterions. fairseq does not look here by itself: ``attlm_fairseq.plugin`` imports them."""
