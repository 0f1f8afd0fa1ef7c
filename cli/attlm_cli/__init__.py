"""The command line: options, then one call into attlm_fairseq. Installed as the package ``attlm_cli``."""
