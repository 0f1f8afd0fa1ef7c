"""The verbs of the library: what each ``attlm`` command does, as one function over n-best lists, texts or files.

They are imported from the package itself: ``import attlm_fairseq as attlm; attlm.rescore(lists, config="attlm.toml")``.
"""
