"""The recurrences, one per file."""

from attlm_fairseq.modules.recurrence.lstm import LSTM
from attlm_fairseq.modules.recurrence.recurrence import Bfloat16Recurrence, Recurrence

__all__ = ["LSTM", "Bfloat16Recurrence", "Recurrence"]
