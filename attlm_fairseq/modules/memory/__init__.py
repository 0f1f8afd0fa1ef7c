"""The memory readers, one per file."""

from __future__ import annotations

from attlm_fairseq.modules.memory.attentive import AttentiveReader
from attlm_fairseq.modules.memory.averaging import AveragingReader
from attlm_fairseq.modules.memory.key_value_predict import KeyValuePredictReader
from attlm_fairseq.modules.memory.ngram import NgramReader
from attlm_fairseq.modules.memory.plain import PlainReader
from attlm_fairseq.modules.memory.pointer import PointerReader
from attlm_fairseq.modules.memory.projected import ProjectedReader
from attlm_fairseq.modules.memory.reader import Read, Reader
from attlm_fairseq.modules.memory.recurrent_memory import RecurrentMemoryReader
from attlm_fairseq.modules.memory.selection import SelectionReader

__all__ = [
    "AttentiveReader",
    "AveragingReader",
    "KeyValuePredictReader",
    "NgramReader",
    "PlainReader",
    "PointerReader",
    "ProjectedReader",
    "Read",
    "Reader",
    "RecurrentMemoryReader",
    "SelectionReader",
]
