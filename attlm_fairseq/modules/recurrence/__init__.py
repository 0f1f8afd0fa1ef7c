"""The recurrences, one per file."""

from attlm_fairseq.modules.recurrence.higher_order import HigherOrderRNN
from attlm_fairseq.modules.recurrence.lstm import LSTM
from attlm_fairseq.modules.recurrence.lstmn import LSTMN
from attlm_fairseq.modules.recurrence.mogrifier import Mogrifier
from attlm_fairseq.modules.recurrence.recurrence import Bfloat16Recurrence, Recurrence
from attlm_fairseq.modules.recurrence.rnn import RNN
from attlm_fairseq.modules.recurrence.two_sizes import TwoSizes
from attlm_fairseq.modules.recurrence.weighted_average import WeightedAverage

__all__ = ["LSTM", "LSTMN", "RNN", "Bfloat16Recurrence", "HigherOrderRNN", "Mogrifier", "Recurrence", "TwoSizes", "WeightedAverage"]
