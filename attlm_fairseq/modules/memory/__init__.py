"""The memory readers, one a file."""

from __future__ import annotations

from attlm_fairseq.modules.memory.attentive import AttentiveReader
from attlm_fairseq.modules.memory.averaging import AveragingReader
from attlm_fairseq.modules.memory.key_value_predict import KeyValuePredictReader
from attlm_fairseq.modules.memory.ngram import NgramReader
from attlm_fairseq.modules.memory.plain import PlainReader
from attlm_fairseq.modules.memory.reader import Memory, Reader
from attlm_fairseq.modules.memory.selection import SelectionReader

READERS: dict[str, type[Reader]] = {
    "attentive_lstm_lm": AttentiveReader,
    "averaging_lstm_lm": AveragingReader,
    "amsrn_lm": SelectionReader,
    "kvp_lstm_lm": KeyValuePredictReader,
    "ngram_rnn_lm": NgramReader,
    "plain_lstm_lm": PlainReader,
}
"""Reader class by model family. A preset is called ``<family>_<table row>``, so its family is the longest name that begins it."""

__all__ = [
    "READERS",
    "AttentiveReader",
    "AveragingReader",
    "KeyValuePredictReader",
    "Memory",
    "NgramReader",
    "PlainReader",
    "Reader",
    "SelectionReader",
]
