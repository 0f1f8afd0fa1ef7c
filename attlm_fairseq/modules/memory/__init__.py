"""The memory readers, one paper a file."""

from __future__ import annotations

from attlm_fairseq.modules.memory.attentive import AttentiveReader
from attlm_fairseq.modules.memory.reader import Memory, Reader

READERS: dict[str, type[Reader]] = {"attentive_lstm_lm": AttentiveReader}
"""Reader class by model family. A preset is called ``<family>_<table row>``, so its family is the longest name that begins it."""

__all__ = ["READERS", "AttentiveReader", "Memory", "Reader"]
