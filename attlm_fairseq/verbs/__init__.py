"""The library's functions: one for each ``attlm`` command, over n-best lists, texts or files.

Import them from the package: ``import attlm_fairseq as attlm; attlm.rescore(lists, config="attlm.toml")``.
"""
