"""What ``check_family`` finds in readers and recurrences that break their contracts."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
from small_models import VARIANTS
from torch import nn

from attlm_fairseq.modules.contract import check_family
from attlm_fairseq.modules.families import FAMILIES, Family
from attlm_fairseq.modules.initialisation import BiasesStartAtZero
from attlm_fairseq.modules.memory import PlainReader
from attlm_fairseq.modules.memory.reader import MemoryReader
from attlm_fairseq.modules.recurrence import LSTM, RNN


class Decay(BiasesStartAtZero, MemoryReader):
    """Features ``tanh(W [h_t; c_t] + b)`` with ``c_t = 0.8 c_{t-1} + 0.2 h_t``."""

    defaults: ClassVar[dict[str, object]] = {}
    columns = None
    starts_with_state = False

    def __init__(self, size: int) -> None:
        super().__init__()
        self.feature_size, self.merge = size, nn.Linear(2 * size, size)

    @classmethod
    def from_config(cls, hidden_size, vocabulary_size, config):
        return cls(hidden_size)

    def forward(self, states, tokens, memory=None, need_read=False):
        (sums,) = self.empty_memory(states[:, 0]) if memory is None else memory
        seen = []
        for state in states.unbind(1):
            sums = 0.8 * sums + 0.2 * state
            seen.append(sums)
        return torch.tanh(self.merge(torch.cat((states, torch.stack(seen, 1)), -1))), None

    def empty_memory(self, state):
        return (torch.zeros_like(state),)

    def advance(self, states, tokens, memory):
        (sums,) = memory
        for state in states.unbind(1):
            sums = 0.8 * sums + 0.2 * state
        return (sums,)


class OfValues(Decay):
    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.first = self.merge.weight[0, 0].item()


class WithoutRoundedSteps(LSTM):
    def bfloat16_steps(self):
        raise NotImplementedError("bfloat16_steps of WithoutRoundedSteps")


class OfAll(Decay):
    def forward(self, states, tokens, memory=None, need_read=False):
        return super().forward(states + states.mean(1, keepdim=True), tokens, memory)


class OfLaterWords(Decay):
    def forward(self, states, tokens, memory=None, need_read=False):
        features, read = super().forward(states, tokens, memory)
        return features + tokens.flip(1).cumsum(1).flip(1).unsqueeze(2), read


class Single(Decay):
    def forward(self, states, tokens, memory=None, need_read=False):
        return super().forward(states, tokens, memory)[0]


class Wide(Decay):
    def forward(self, states, tokens, memory=None, need_read=False):
        features, read = super().forward(states, tokens, memory)
        return torch.cat((features, features), -1), read


class OneForAllRows(Decay):
    def empty_memory(self, state):
        return (torch.zeros_like(state[0]),)


class Bare(Decay):
    def advance(self, states, tokens, memory):
        return super().advance(states, tokens, memory)[0]


class Forgetful(Decay):
    def advance(self, states, tokens, memory):
        return (states[:, -1],)


class Overwriting(Decay):
    def advance(self, states, tokens, memory):
        new = super().advance(states, tokens, memory)
        memory[0].copy_(new[0])
        return new


class OfTheBatch(Decay):
    def forward(self, states, tokens, memory=None, need_read=False):
        return super().forward(states - states.mean(0, keepdim=True), tokens, memory)


class SlowSteps(RNN):
    def step(self, inputs, before):
        output, state = super().step(inputs, before)
        return 0.99 * output, state


class Backwards(RNN):
    def read(self, embedded, before, lengths=None):
        return super().read(embedded + embedded.mean(1, keepdim=True), before, lengths)


class OverwritingSteps(RNN):
    def step(self, inputs, before):
        output, state = super().step(inputs, before)
        before[0].copy_(state[0])
        return output, state


class NoLengths(RNN):
    def read(self, embedded, before, lengths=None):
        outputs, state = super().read(embedded, before, None)
        return (outputs if lengths is None else 0 * outputs), state


class WideOutputs(RNN):
    def read(self, embedded, before, lengths=None):
        outputs, state = super().read(embedded, before, lengths)
        return torch.cat((outputs, outputs), -1), state


class BareSteps(RNN):
    def step(self, inputs, before):
        return super().step(inputs, before)[0]


class Shy(Decay):
    def forward(self, states, tokens, memory=None, need_read=False):
        features, read = super().forward(states, tokens, memory)
        return features * (0.5 if need_read else 1), read


class Infinite(Decay):
    def forward(self, states, tokens, memory=None, need_read=False):
        features, read = super().forward(states, tokens, memory)
        return features / 0, read


class Stateless(RNN):
    def read(self, embedded, before, lengths=None):
        return super().read(embedded, self.initial(len(embedded)), lengths)


@pytest.mark.parametrize("variant", VARIANTS)
def test_models_of_this_package_keep_the_contract(variant):
    family, options = VARIANTS[variant]
    sizes = {"decoder_embed_dim": 12, "decoder_hidden_size": 12}
    check_family(family, **{**sizes, **options})


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        (Family(RNN, Decay), None),
        (Family(LSTM, OfAll), "the features of the reader change with later states or words"),
        (Family(LSTM, OfLaterWords), "the features of the reader change with later states or words"),
        (Family(LSTM, Single), r"`forward` of the reader returns a tensor of shape .*: expected a tuple of two"),
        (
            Family(LSTM, Wide),
            r"the features of the reader \(feature_size\) are a tensor of shape \(3, 9, 16\): expected the shape \(3, 9, 8\)",
        ),
        (Family(LSTM, OneForAllRows), r"`empty_memory` of the reader has a tensor of shape \(8,\) for 3 rows: expected the rows first"),
        (Family(LSTM, Bare), r"`advance` of the reader is a tensor of shape \(3, 8\): expected a tuple of tensors"),
        (
            Family(LSTM, Forgetful),
            "the reader's features of states in two pieces differ from one pass: does `advance` return what it needs",
        ),
        (Family(LSTM, Overwriting), "the reader overwrites the memory before"),
        (Family(LSTM, OfTheBatch), "the features of a row depend on the other rows of the batch"),
        (Family(RNN, Shy), "the features of the reader change if what it has read is asked for"),
        (Family(RNN, Infinite), "they are not finite"),
        (Family(NoLengths, PlainReader), "with `lengths`, `read` of the recurrence differs before the ends of the rows"),
        (Family(WideOutputs, PlainReader), r"the outputs of the recurrence .* are a tensor of shape \(3, 9, 16\): expected .* \(3, 9, 8\)"),
        (
            Family(BareSteps, PlainReader),
            "`step` of the recurrence returns a tensor of shape .*: expected a tuple of two, the second one the state",
        ),
        (Family(SlowSteps, PlainReader), "`inputs` and `step` of the recurrence differ from `read` at position 0"),
        (Family(Backwards, PlainReader), "the outputs of the recurrence change with later words"),
        (Family(OverwritingSteps, PlainReader), "`step` of the recurrence overwrites the state before"),
        (Family(Stateless, PlainReader), "`read` of the recurrence in two pieces differs from one pass"),
    ],
)
def test_what_breaks_the_contract_is_told(parts, told):
    dict.__setitem__(FAMILIES, "broken_lm", parts)
    try:
        if told is None:
            check_family("broken_lm")
            return
        with pytest.raises(ValueError, match=told):
            check_family("broken_lm")
    finally:
        dict.__delitem__(FAMILIES, "broken_lm")


def test_what_would_fail_after_training_is_told_before_it(monkeypatch):
    for parts, error, told in (
        (Family(LSTM, OfValues), ValueError, "a constructor needs the values of tensors"),
        (Family(WithoutRoundedSteps, PlainReader), NotImplementedError, "bfloat16_steps of WithoutRoundedSteps"),
    ):
        dict.__setitem__(FAMILIES, "broken_lm", parts)
        try:
            with pytest.raises(error, match=told):
                check_family("broken_lm")
        finally:
            dict.__delitem__(FAMILIES, "broken_lm")


def test_names_of_families():
    with pytest.raises(ValueError, match="the family 'nosuch_lm' is not in FAMILIES"):
        check_family("nosuch_lm")
    for name, other in (("plain_lstm_lm_decay", "plain_lstm_lm"), ("kvp", "kvp_lstm_lm")):
        with pytest.raises(ValueError, match=f"the name '{name}' and that of the family '{other}' begin alike"):
            FAMILIES[name] = Family(LSTM, Decay)
        assert name not in FAMILIES
    with pytest.raises(ValueError, match="the name 'zaremba_medium' is taken by a preset"):
        FAMILIES["zaremba_medium"] = Family(LSTM, Decay)
