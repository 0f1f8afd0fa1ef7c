"""Memory-augmented recurrent language models for fairseq, and the rescoring of n-best lists with them.

Importing the package is cheap: neither torch nor fairseq is loaded. Only where fairseq is there already, as in its own commands
with ``--user-dir attlm_fairseq``, the models and tasks register themselves; see :mod:`attlm_fairseq.plugin`.
"""

import sys

__version__ = "0.2.0"

if sys.modules.get("fairseq"):
    from attlm_fairseq.plugin import register

    register()
