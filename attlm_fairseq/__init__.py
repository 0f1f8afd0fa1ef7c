"""Memory-augmented recurrent language models for fairseq, and the rescoring of n-best lists with them.

Importing the package is cheap: neither torch nor fairseq is loaded. fairseq imports it as ``--user-dir attlm_fairseq`` and
expects the models and tasks to be registered afterwards; see :mod:`attlm_fairseq.plugin` (next commits).
"""

__version__ = "0.1.0"
