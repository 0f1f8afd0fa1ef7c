"""fairseq tasks. fairseq imports them with ``--user-dir``."""
