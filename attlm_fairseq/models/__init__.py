"""fairseq adapters: each file registers one ``--arch`` and its presets. fairseq imports them with ``--user-dir``."""
