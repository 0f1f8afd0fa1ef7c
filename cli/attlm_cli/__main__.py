"""``python -m attlm_cli``: the same as ``attlm``."""

from attlm_cli.main import main

if __name__ == "__main__":
    main()
