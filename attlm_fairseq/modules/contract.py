"""Check that the recurrence, the reader and the output layer of a model keep their contracts. For models of other packages.

Shapes: B = ROWS sentences in the batch, T = LENGTH positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attlm_fairseq.modules.families import build_language_model
from attlm_fairseq.modules.kernels.low_precision_steps import stepping_model
from attlm_fairseq.modules.language_model import LanguageModel

WORDS, PADDING, ROWS, LENGTH, CUT = 20, 1, 3, 9, 4
TOLERANCE = 1e-8  # for computations in float64
RANGE = 0.5  # of the weights: large ones, so that a missing part is seen

SIZES = {"decoder_embed_dim": 8, "decoder_hidden_size": 8, "decoder_layers": 2, "output_layer": "tied"}
PLAIN = {"dropout": 0.0, "forget_bias": 1.0}


def check_family(name: str, **options: Any) -> None:
    """Check a small model of a family with random weights in float64.

    States and memories must be tuples of tensors with the batch first, and are not overwritten. No position may depend on later tokens
    or on other rows. Pieces of a sequence, single steps and exchanged rows must give what the whole sequence gives. The probabilities
    must sum to 1.

    Args:
        name: of the family, a key of ``FAMILIES``.
        options: of the model, named as on fairseq-train's command line, with underscores. The sizes are 8, with 2 layers, and the output
            layer is tied, unless given.

    Raises:
        ValueError: the model cannot be built, or a part breaks its contract. The message says which, and what is expected. Errors of the
            parts' own code are passed on.
    """
    config = {**SIZES, **PLAIN, **options}
    model = build_language_model(name, config, WORDS, PADDING)
    try:
        with torch.device("meta"):
            build_language_model(name, config, WORDS, PADDING)
    except (RuntimeError, NotImplementedError) as error:
        raise ValueError(
            f"a constructor needs the values of tensors, but a checkpoint is compared with a model without values: {error}"
        ) from None
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        model.initialise(RANGE)
        for parameter in model.double().parameters():
            if parameter.is_floating_point():
                parameter.add_(torch.empty_like(parameter).uniform_(-RANGE / 2, RANGE / 2, generator=generator))
        tokens = torch.randint(2, WORDS, (ROWS, LENGTH), generator=generator)
        _check_model(model.eval(), tokens)
        steps = stepping_model(model.float(), "bfloat16")
        model.recurrence.bfloat16_steps()  # what scores prefix trees; it may be missing
        features, read, _ = steps.step_features(steps.inputs(tokens[:, 0]), model.initial_state(ROWS))
        _require_shape(steps.output.log_probs(features, read), (ROWS, WORDS), "ln p of a step in bfloat16 (--precision bfloat16)")


def _check_model(model: LanguageModel, tokens: Tensor) -> None:
    _check_shapes(model, tokens)
    _check_recurrence(model, tokens)
    _check_rows(model, tokens)
    _check_reader(model, tokens)
    _check_exchanged_rows(model, tokens)
    whole = model(tokens)[0]
    log_probs = whole.log_softmax(-1)
    _require_close(log_probs.exp().sum(-1), torch.ones_like(log_probs[..., 0]), "the probabilities of the output layer do not sum to 1")
    state = model.initial_state(len(tokens))
    for place in range(tokens.size(1)):
        logits, state = model.step(tokens[:, place], state)
        _require_close(
            logits.log_softmax(-1), log_probs[:, place], f"the probabilities of step {place} are not those of the whole sequence"
        )


def _check_shapes(model: LanguageModel, tokens: Tensor) -> None:
    rows, length = tokens.shape
    recurrence, reader = model.recurrence, model.reader
    _require_rows(recurrence.initial(rows), rows, "`initial` of the recurrence")
    width = recurrence.hidden_size + len(recurrence.below) * recurrence.lower_size
    outputs, state = _pair(recurrence.read(model.embedding(tokens), recurrence.initial(rows)), "`read` of the recurrence", "the state")
    _require_rows(state, rows, "the state that `read` of the recurrence returns")
    _require_shape(outputs, (rows, length, width), "the outputs of the recurrence (hidden_size, and lower_size of layers below)")
    states = model.states(outputs)
    memory = reader.empty_memory(states[:, 0])
    _require_rows(memory, rows, "`empty_memory` of the reader")
    _require_rows(reader.advance(states, tokens, memory), rows, "`advance` of the reader")
    features, _ = _pair(reader(states, tokens), "`forward` of the reader", "what was read, or None")
    _require_shape(features, (rows, length, reader.feature_size), "the features of the reader (feature_size)")


def _check_recurrence(model: LanguageModel, tokens: Tensor) -> None:
    recurrence, embedded = model.recurrence, model.embedding(tokens)

    def read(values: Tensor, before: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        return _unchanged(lambda: recurrence.read(values, before), before, "`read` of the recurrence overwrites the state before")

    whole, _ = read(embedded, recurrence.initial(len(tokens)))
    changed, _ = read(model.embedding(_other_end(tokens)), recurrence.initial(len(tokens)))
    _require_close(changed[:, :CUT], whole[:, :CUT], "the outputs of the recurrence change with later words")
    first, state = read(embedded[:, :CUT], recurrence.initial(len(tokens)))
    rest, _ = read(embedded[:, CUT:], state)
    _require_close(
        torch.cat((first, rest), 1), whole, "`read` of the recurrence in two pieces differs from one pass: is the state complete?"
    )
    lengths = torch.arange(len(tokens)) % tokens.size(1) + 1
    short, _ = recurrence.read(embedded, recurrence.initial(len(tokens)), lengths)
    for row, count in enumerate(lengths.tolist()):
        _require_close(
            short[row, :count], whole[row, :count], "with `lengths`, `read` of the recurrence differs before the ends of the rows"
        )
    state = recurrence.initial(len(tokens))
    for place in range(tokens.size(1)):
        inputs = recurrence.inputs(embedded[:, place])
        before = state
        found = _unchanged(lambda: recurrence.step(inputs, before), before, "`step` of the recurrence overwrites the state before")  # noqa: B023
        output, state = _pair(found, "`step` of the recurrence", "the state")
        _require_rows(state, len(tokens), "the state that `step` of the recurrence returns")
        _require_close(output, whole[:, place], f"`inputs` and `step` of the recurrence differ from `read` at position {place}")


def _check_reader(model: LanguageModel, tokens: Tensor) -> None:
    reader = model.reader
    states = model.states(model.recurrence.read(model.embedding(tokens), model.recurrence.initial(len(tokens)))[0])
    whole, _ = reader(states, tokens)
    _require_close(reader(states, tokens, None, True)[0], whole, "the features of the reader change if what it has read is asked for")
    others = _other_end(tokens)
    ended = model.states(model.recurrence.read(model.embedding(others), model.recurrence.initial(len(tokens)))[0])
    _require_close(reader(ended, others)[0][:, :CUT], whole[:, :CUT], "the features of the reader change with later states or words")
    for cuts in ([CUT], range(1, tokens.size(1))):
        memory, pieces = reader.empty_memory(states[:, 0]), []
        for begin, end in zip([0, *cuts], [*cuts, tokens.size(1)], strict=True):
            piece = states[:, begin:end], tokens[:, begin:end]
            before = memory
            _unchanged(lambda: reader(*piece, before), before, "`forward` of the reader overwrites the memory before")  # noqa: B023
            features, _, memory = _unchanged(lambda: reader.read_on(*piece, before), before, "the reader overwrites the memory before")  # noqa: B023
            pieces.append(features)
        how = "in two pieces" if len(pieces) == 2 else "one by one"
        _require_close(
            torch.cat(pieces, 1), whole, f"the reader's features of states {how} differ from one pass: does `advance` return what it needs?"
        )


def _check_rows(model: LanguageModel, tokens: Tensor) -> None:
    whole = model.extract_features(tokens)[0]
    for row in range(len(tokens)):
        alone = model.extract_features(tokens[row : row + 1])[0]
        _require_close(alone[0], whole[row], "the features of a row depend on the other rows of the batch")


def _check_exchanged_rows(model: LanguageModel, tokens: Tensor) -> None:
    whole = model.extract_features(tokens)[0]
    _, _, state = model.read(tokens[:, :CUT], model.initial_state(len(tokens)))
    order = torch.arange(len(tokens)).flip(0)
    features, _, _ = model.read(tokens[order][:, CUT:], state.select(order))
    _require_close(features, whole[order][:, CUT:], "the features change if rows of states and memories are exchanged")


def _other_end(tokens: Tensor) -> Tensor:
    """Return the tokens with others from position CUT on."""
    changed = tokens.clone()
    changed[:, CUT:] = (changed[:, CUT:] - 1) % (WORDS - 2) + 2
    return changed


def _pair(found: Any, called: str, second: str) -> tuple[Any, Any]:
    if not isinstance(found, tuple) or len(found) != 2:
        raise ValueError(f"{called} returns {_shown(found)}: expected a tuple of two, the second one {second}")
    return found


def _require_rows(found: Any, rows: int, called: str) -> None:
    if not isinstance(found, tuple) or not all(isinstance(part, Tensor) for part in found):
        raise ValueError(f"{called} is {_shown(found)}: expected a tuple of tensors")
    for part in found:
        if not part.dim() or len(part) != rows:
            raise ValueError(f"{called} has a tensor of shape {tuple(part.shape)} for {rows} rows: expected the rows first")


def _require_shape(found: Tensor, shape: tuple[int, ...], called: str) -> None:
    if not isinstance(found, Tensor) or found.shape != shape:
        raise ValueError(f"{called} are {_shown(found)}: expected the shape {shape}")


def _require_close(found: Tensor, expected: Tensor, told: str) -> None:
    if not found.isfinite().all():
        raise ValueError(f"{told}: they are not finite")
    difference = float((found - expected).abs().max())
    if not difference <= TOLERANCE:
        raise ValueError(f"{told} (by up to {difference:.2g})")


def _unchanged(call: Callable[[], Any], before: tuple[Tensor, ...], told: str) -> Any:
    """Return what a call returns. Raises ValueError if it changes tensors ``before``."""
    copies = [part.clone() for part in before]
    found = call()
    if not all(torch.equal(part, copy) for part, copy in zip(before, copies, strict=True)):
        raise ValueError(told)
    return found


def _shown(found: Any) -> str:
    return f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"{found!r:.60}"
