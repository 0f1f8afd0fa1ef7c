"""What past inputs contribute to an LSTM's cell (Murdoch and Szlam 2017; Salton and Kelleher 2018, Eq. 7).

    c_t = sum over i of e_ti,    e_ti = (f_t f_{t-1} .. f_{i+1}) i_i g_i

``e_ti`` is the contribution of input i to the cell ``c_t`` of the last layer. Its share is ``|e_ti| / sum over j of |e_tj|``,
where ``|e|`` is the sum of absolute values over the units of the cell.

Shapes: B sentences in the batch, T positions (the sentence start and the n words), H hidden size.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from attlm_fairseq.checkpoints.reading import TrainedModel
from attlm_fairseq.errors import InputError
from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.modules.recurrence import LSTM, TwoSizes
from attlm_fairseq.modules.recurrence.torch_layers import lstm_layer, weights_of


def require_lstm(trained: TrainedModel) -> None:
    """Raise InputError unless the model's recurrence is an LSTM."""
    if trained.model.recurrence.name != LSTM.name:
        found = f"a model of architecture {trained.architecture} has another recurrence"
        raise InputError(f"{found}: contributions are computed for plain LSTM layers", path=trained.path)


def last_gates(model: LanguageModel, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return the forget gates and the written values ``i * g`` of the LSTM's last layer, (B, T, H) each, for tokens (B, T)."""
    lstm, sequence = cast("LSTM | TwoSizes", model.recurrence), model.embedding(tokens)
    if isinstance(lstm, TwoSizes):
        sequence, _ = lstm.lower.read(sequence, lstm.lower.initial(len(tokens)))
        lstm, sequence = cast(LSTM, lstm.top), sequence[..., : lstm.lower_size]
    zeros = sequence.new_zeros(len(tokens), lstm.hidden_size)
    for layer in range(lstm.num_layers):
        weight, recurrent, bias = weights_of(lstm, layer)
        inputs = sequence
        sequence, _, _ = lstm_layer(inputs, weight, recurrent, bias, zeros, zeros)
    before = torch.cat((zeros.unsqueeze(1), sequence[:, :-1]), dim=1)
    gates = nn.functional.linear(inputs, weight, bias) + nn.functional.linear(before, recurrent)
    i, f, g, _ = gates.chunk(4, dim=2)
    return f.sigmoid(), i.sigmoid() * g.tanh()


@torch.inference_mode()
def contribution_shares(model: LanguageModel, tokens: Tensor) -> Tensor:
    """Return the share of each input i in the cell at each position t, (B, T, T); 0 for i > t. Each row sums to 1."""
    forget, written = last_gates(model, tokens)
    held = torch.zeros_like(written)  # e_ti by i
    sizes = written.new_zeros(*tokens.shape, tokens.size(1))
    for t in range(tokens.size(1)):
        held[:, :t] *= forget[:, t : t + 1]
        held[:, t] = written[:, t]
        sizes[:, t, : t + 1] = held[:, : t + 1].abs().sum(dim=2)
    return sizes / sizes.sum(dim=2, keepdim=True)
