"""The models as plain torch modules, without fairseq."""
