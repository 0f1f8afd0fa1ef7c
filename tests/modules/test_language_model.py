"""The pure-torch models against the loop reference, and the properties every reader has."""

from __future__ import annotations

import pytest
import torch
from small_models import (
    LAYERS,
    OF_WORDS,
    POINTERS,
    SIZE,
    VARIANTS,
    WITHOUT_MEMORY,
    WITHOUT_READ,
    WITHOUT_WEIGHTS,
    V,
    make_model,
    nll_of,
    reference_log_probs,
    sentences,
    set_limits,
)

from attlm_fairseq.attention.weights import weights_of
from attlm_fairseq.checkpoints.vocabulary import EOS, PAD
from attlm_fairseq.modules.kernels import linear_nll
from attlm_fairseq.modules.kernels.lstm_over_time import lstm_over_time
from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.modules.memory import KeyValuePredictReader, NgramReader
from attlm_fairseq.modules.recurrence import lstm
from attlm_fairseq.modules.regularisation import Regularisation


def test_values_gradients_and_weights_are_those_of_the_equations(variant):
    model = make_model(variant)
    tokens = sentences(count=2, longest=35)  # longer than a block of queries
    logits, read = model(tokens, need_read=True)
    log_probs = torch.log_softmax(model(tokens)[0], dim=-1)  # the way without weights may be another, fused one
    torch.testing.assert_close(torch.log_softmax(logits, dim=-1), log_probs, rtol=0, atol=1e-12)
    targets = tokens.roll(-1, dims=1)
    log_probs.gather(2, targets.unsqueeze(2)).sum().backward()
    got = {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.requires_grad}
    model.zero_grad()

    expected = [reference_log_probs(model, sentence.tolist(), variant) for sentence in tokens]
    sum(values.gather(1, target.unsqueeze(1)).sum() for (values, _), target in zip(expected, targets, strict=True)).backward()
    torch.testing.assert_close(log_probs, torch.stack([values for values, _ in expected]), rtol=0, atol=1e-10)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            torch.testing.assert_close(got[name], parameter.grad, rtol=1e-7, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")
    weights = None if variant in WITHOUT_WEIGHTS else weights_of(model, tokens, read)
    for row, (_, of_sentence) in enumerate(expected):
        assert len(of_sentence) == (0 if weights is None else 35)
        for t, a in enumerate(of_sentence):
            full = torch.zeros(weights.size(2), dtype=torch.float64)
            full[: len(a)] = torch.stack(a) if a else full[:0]
            torch.testing.assert_close(weights[row, t], full, rtol=0, atol=1e-10)


def test_weights_come_only_when_asked_for(variant):
    model = make_model(variant)
    assert (model(sentences())[1] is None) == (variant not in POINTERS)
    assert (model(sentences(), need_read=True)[1] is None) == (variant in WITHOUT_READ)


def test_a_position_does_not_depend_on_later_tokens(variant):
    model, tokens = make_model(variant), sentences()
    changed = tokens.clone()
    changed[:, 17:] = changed[:, 17:].flip(1)
    before, after = model(tokens)[0], model(changed)[0]
    torch.testing.assert_close(before[:, :17], after[:, :17], rtol=0, atol=1e-12)
    assert (before[:, 18:] - after[:, 18:]).abs().max() > 1e-3  # the change reaches what comes after it


def test_a_position_depends_on_the_first_token_through_the_memory(variant):
    """A reader that forgot to read would still pass every test of causality."""
    model, tokens = make_model(variant), sentences(count=1)
    states, _ = model.recurrence.read(model.embedding(tokens), model.recurrence.initial(1))
    changed = states.clone()
    changed[:, 0] += 1.0  # the state in memory only: the LSTM has run already
    difference = (model.reader(states, tokens)[0] - model.reader(changed, tokens)[0]).abs().amax(dim=(0, 2))
    windows = {"2-gram": 2, "3-gram": 3, "attention": 5, "attention, skip 2": 7, "key-value": 5, "key-value-predict": 5}
    variant_of_reader = variant.removesuffix(", projection")
    first = max(1, model.reader.columns.newest) if model.reader.columns else 1  # before that, the state is not attended to
    without_states = variant in OF_WORDS and variant != "RMR"  # the second LSTM of RMR remembers the state
    reach = 1 if VARIANTS[variant][0] in WITHOUT_MEMORY or variant in POINTERS or without_states else windows.get(variant_of_reader, 40)
    assert not difference[1:first].any()
    assert difference[first:reach].numel() == 0 or difference[first:reach].min() > 1e-9
    assert not difference[reach:].any()  # beyond a window there is nothing


@pytest.mark.parametrize("variant", [variant for variant in OF_WORDS if variant not in ("RMR", *POINTERS)])
def test_a_position_depends_on_the_words_of_the_window(variant):
    model, tokens = make_model(variant), sentences(count=1)
    states, _ = model.recurrence.read(model.embedding(tokens), model.recurrence.initial(1))
    changed = tokens.clone()
    changed[:, 3] += 1  # the word in memory only: the LSTM has run already
    difference = (model.reader(states, tokens)[0] - model.reader(states, changed)[0]).abs().amax(dim=(0, 2))
    reader = getattr(model.reader, "inner", model.reader)
    begin = 3 + reader.skip
    end = begin + reader.window
    assert difference[begin:end].min() > 1e-9
    assert not difference[:begin].any()
    assert not difference[end:].any()


def test_sentences_do_not_depend_on_neighbours_or_padding(variant):
    model, tokens = make_model(variant), sentences()
    together = model(tokens)[0]
    for row in range(len(tokens)):
        alone = model(tokens[row : row + 1, : 9 + row])[0]
        padded = tokens.clone()
        padded[row, 9 + row :] = PAD
        torch.testing.assert_close(alone[0], together[row, : 9 + row], rtol=0, atol=1e-12)
        torch.testing.assert_close(model(padded)[0][row, : 9 + row], alone[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("length", [1, 2, 40])
def test_steps_agree_with_the_full_pass_also_when_rows_move(variant, length):
    model, tokens = make_model(variant), sentences(longest=length)
    full = model(tokens)[0]
    state = model.initial_state(len(tokens))
    order = torch.arange(len(tokens))
    for t in range(length):
        logits, state = model.step(tokens[order, t], state)
        torch.testing.assert_close(logits, full[order, t], rtol=0, atol=1e-10)
        rows = torch.tensor([4, 0, 0, 2]) if t % 2 else torch.tensor([1, 1, 3, 0, 2])  # duplicated, dropped, exchanged
        rows = rows % len(order)
        state, order = state.select(rows), order[rows]


@pytest.mark.parametrize("cuts", [(1, 5, 6, 30), (3, 36), (20,)])
def test_pieces_agree_with_the_full_pass(variant, cuts):
    """Features and weights of a sequence read in pieces, with state and memory carried: truncated backpropagation's forward pass."""
    model, tokens = make_model(variant), sentences()
    expected, expected_read = model.extract_features(tokens, need_read=True)
    state = model.initial_state(len(tokens))
    for begin, end in zip((0, *cuts), (*cuts, 40), strict=True):
        features, read, state = model.read(tokens[:, begin:end], state, need_read=True)
        torch.testing.assert_close(features, expected[:, begin:end], rtol=0, atol=1e-10)
        if read is not None:  # columns of the memory first; a running sum has one for all of its states
            weights = read.weights
            if variant in POINTERS:
                torch.testing.assert_close(read.log_gate, expected_read.log_gate[:, begin:end], rtol=0, atol=1e-10)
            elif "attention" not in variant and "key" not in variant:  # a window's weights on the memory may be of fewer slots
                own = min(end - begin, weights.size(2))
                full = expected_read.weights[:, begin:end]
                initial = model.reader.columns.initial
                tail = full[:, :, begin + initial : end + (variant == "averaging")][:, :, :own]
                torch.testing.assert_close(weights[:, :, weights.size(2) - tail.size(2) :], tail, rtol=0, atol=1e-10)
            torch.testing.assert_close(weights.sum(2), expected_read.weights[:, begin:end].sum(2), rtol=0, atol=1e-10)


def test_rows_begin_anew_beside_rows_that_go_on(variant):
    """At a document's end a row starts from nothing while its neighbours keep state and memory."""
    model, tokens = make_model(variant), sentences()
    _, _, state = model.read(tokens[:, :7], model.initial_state(5))
    starts = torch.tensor([False, True, False, False, True])
    features, _, after = model.read(tokens[:, 7:12], state.reset(starts, model.initial_state(1)))
    expected = torch.where(
        starts.view(-1, 1, 1), model.extract_features(tokens[:, 7:12])[0], model.extract_features(tokens[:, :12])[0][:, 7:]
    )
    torch.testing.assert_close(features, expected, rtol=0, atol=1e-10)
    all_anew = after.reset(torch.ones(5, dtype=torch.bool), model.initial_state(1))
    initial = model.initial_state(5)
    for part, new in zip((*all_anew.recurrent, *all_anew.memory), (*initial.recurrent, *initial.memory), strict=True):
        assert torch.equal(part, new)  # and takes no more room than at the beginning


def test_loss_in_pieces_is_cross_entropy(variant, monkeypatch):
    """Values and all gradients of ``nll`` against torch's own cross entropy, with pieces of three rows."""
    set_limits(monkeypatch, logits=3 * V)
    model, tokens = make_model(variant), sentences()
    features, read = model.extract_features(tokens)
    targets = tokens.roll(-1, dims=1)
    gradients = []
    for loss in (
        nll_of(model, features, read, targets, tokens >= 0) * 0.5,
        torch.nn.functional.cross_entropy(model.output(features, read).flatten(0, 1), targets.flatten(), reduction="sum") * 0.5,
    ):
        model.zero_grad()
        loss.backward(retain_graph=True)
        gradients.append([loss.detach(), *(p.grad.clone() for p in model.parameters() if p.requires_grad)])
    for own, torchs in zip(*gradients, strict=True):
        torch.testing.assert_close(own, torchs, rtol=1e-9, atol=1e-10)


def test_gradients_of_the_loss_can_be_had_again():
    """They were computed along with the loss: neither adding to them nor asking for them at another scale may change what is kept."""
    model, tokens = make_model("plain"), sentences()
    features, _ = model.extract_features(tokens)
    loss = model.output.nll(features.flatten(0, 1), tokens.flatten())
    weight = model.output.weight
    [once] = torch.autograd.grad(loss, weight, retain_graph=True)
    [again] = torch.autograd.grad(loss, weight, retain_graph=True)
    again.zero_()
    for _ in range(2):
        loss.backward(retain_graph=True)
    torch.testing.assert_close(weight.grad, 2 * once)
    weight.grad.zero_()
    (loss * 3).backward(retain_graph=True)
    torch.testing.assert_close(weight.grad, 3 * once)
    torch.testing.assert_close(torch.autograd.grad(loss, weight)[0], once)


@pytest.mark.parametrize("rows", [1, 3, 100, 250])
def test_loss_in_lower_precision_rounds_products_alone(monkeypatch, rows):
    """With float32 as the lower precision of a model in float64."""
    set_limits(monkeypatch, rounded_logits=rows * V, loss_rows=7)
    monkeypatch.setattr(linear_nll, "GRADIENT_ROWS", 8)
    leaves = [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in ((200, SIZE), (V, SIZE), (V,))]
    targets = torch.arange(200) % V
    features, weight, bias = leaves
    losses = (
        linear_nll._LinearNLL.apply(features, weight, bias, targets, linear_nll._Settings(linear_nll.PLAIN_LOSS, torch.float32, True))[0],
        torch.nn.functional.cross_entropy(features @ weight.t() + bias, targets, reduction="sum"),
    )
    gradients = [torch.autograd.grad(loss, leaves) for loss in losses]
    for own, torchs in zip((losses[0], *gradients[0]), (losses[1], *gradients[1]), strict=True):
        assert own.dtype == torch.float64
        torch.testing.assert_close(own, torchs, rtol=1e-5, atol=1e-5)
    assert not torch.equal(gradients[0][0], gradients[1][0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_loss_of_no_predictions(dtype):
    """As of a batch that is all padding; what the gradients are made in may have held anything."""
    leaves = [torch.randn(size, requires_grad=True) for size in ((0, SIZE), (V, SIZE), (V,))]
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(1).isnan()
        loss = linear_nll._LinearNLL.apply(
            *leaves, torch.empty(0, dtype=torch.int64), linear_nll._Settings(linear_nll.PLAIN_LOSS, dtype, True)
        )[0]
        gradients = torch.autograd.grad(loss, leaves)
    finally:
        torch.use_deterministic_algorithms(False)
    assert loss == 0
    assert not any(gradient.any() for gradient in gradients)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_loss_without_gradients_makes_none(dtype, monkeypatch):
    model, tokens = make_model("plain", torch.float32), sentences()
    for products in (linear_nll._Products, linear_nll._RoundedProducts):
        monkeypatch.setattr(products, "add_gradients", lambda *_: pytest.fail("gradients of an evaluation"))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        features, _ = model.extract_features(tokens)
        assert model.output.nll(features.flatten(0, 1), tokens.flatten()) > 0


@pytest.mark.parametrize(("dtype", "rows"), [(torch.float32, 3), (torch.bfloat16, 5)])
def test_a_loss_holds_no_more_logits_than_its_limit(dtype, rows, monkeypatch):
    set_limits(monkeypatch, logits=3 * V, rounded_logits=5 * V, loss_numbers=20 * V)
    held = []
    for products in (linear_nll._Products, linear_nll._RoundedProducts):

        def logits(layer, piece, compute=products.logits):
            found = compute(layer, piece)
            held.append(len(found))
            return found

        monkeypatch.setattr(products, "logits", logits)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        linear_nll.linear_nll(torch.randn(20, SIZE), torch.randn(V, SIZE), torch.randn(V), torch.arange(20) % V)
    assert (max(held), sum(held)) == (rows, 20)


def test_a_large_scale_of_the_loss_in_half_precision():
    """fairseq's --fp16 begins with 128 and may reach more than float16 holds, 65,504."""
    features, weight = (torch.full(size, 2.0**-6, dtype=torch.float16, requires_grad=True) for size in ((1, SIZE), (V, SIZE)))
    bias = torch.zeros(V, dtype=torch.float16)
    loss = linear_nll.linear_nll(features, weight, bias, torch.tensor([0]))
    [scaled] = torch.autograd.grad(loss * 2.0**17, weight, retain_graph=True)
    [alone] = torch.autograd.grad(loss, weight)
    assert alone.all()
    torch.testing.assert_close(scaled.double(), alone.double() * 2.0**17, rtol=1e-3, atol=0)


def test_adaptive_output_is_a_distribution_and_its_loss_is_exact():
    model = make_model("single", output_layer="adaptive", adaptive_cutoffs="5,11", decoder_embed_dim=4, decoder_hidden_size=16)
    tokens = sentences()
    log_probs = model(tokens)[0]
    assert log_probs.shape == (5, 40, V)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(5, 40, dtype=torch.float64), rtol=0, atol=1e-12)
    features, _ = model.extract_features(tokens)
    targets = torch.arange(200) % V  # every id, those of padding and </s> included
    expected = -log_probs.flatten(0, 1).gather(1, targets.unsqueeze(1)).sum()
    torch.testing.assert_close(model.output.nll(features.flatten(0, 1), targets), expected, rtol=0, atol=1e-10)
    for wrong in ("11,5", "0,5", "19", "x"):
        with pytest.raises(ValueError, match="adaptive"):
            make_model("single", output_layer="adaptive", adaptive_cutoffs=wrong)
    with pytest.raises(ValueError, match="16 are needed for 2"):
        make_model("single", output_layer="adaptive", adaptive_cutoffs="5,11")
    with pytest.raises(ValueError, match="cutoffs"):
        make_model("single", output_layer="adaptive")


def test_states_that_do_not_divide_into_parts_are_refused():
    for size, mode, parts in ((5, "key-value", 2), (8, "key-value-predict", 3)):
        with pytest.raises(ValueError, match=f"the state size {size} is not divisible into the {parts} parts of {mode}"):
            KeyValuePredictReader(size, mode, 3)
    for order in (3, 0):
        with pytest.raises(ValueError, match=f"the state size 8 is not divisible into {order} parts"):
            NgramReader(8, order)


@pytest.mark.parametrize("output", ["tied", "untied", "adaptive"])
def test_output_biases_init_output_bias(output):
    cutoffs = {"output_layer": "adaptive", "adaptive_cutoffs": "5,11"} if output == "adaptive" else {"output_layer": output}
    model = make_model("single", size=16, **cutoffs)
    counts = torch.arange(V) ** 2
    model.init_output_bias(counts)
    expected = counts.double().clamp(min=0.5) / counts.double().clamp(min=0.5).sum()
    found = model.output.log_probs(torch.zeros(1, 16, dtype=torch.float64))[0].exp()
    torch.testing.assert_close(found.sum(), torch.tensor(1.0, dtype=torch.float64))
    if output == "adaptive":  # words within a cluster are alike, having no biases
        for begin, end in ((5, 11), (11, V)):
            expected[begin:end] = expected[begin:end].mean()
    torch.testing.assert_close(found, expected)


ADAPTIVE = {"output_layer": "adaptive", "adaptive_cutoffs": "5,11", "size": 48}
FREQUENT = [[EOS, EOS, EOS], [EOS, PAD, PAD]]  # blank lines: no word of a cluster of rarer ones


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("options", [{}, ADAPTIVE], ids=["its own output layer", "adaptive"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_every_parameter_has_a_gradient_whatever_the_batch(variant, length, options, precision):
    """Zeros at least: torch's DistributedDataParallel waits for a parameter without one and then fails."""
    if variant in POINTERS and options:
        pytest.skip("a pointer has a full softmax")
    model = make_model(variant, torch.float32, **options)
    tokens = torch.tensor(FREQUENT)[:, :length]
    for carried in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            features, read = model.read(tokens, model.initial_state(2))[:2] if carried else model.extract_features(tokens)
            nll_of(model, features, read, tokens, tokens == EOS).backward()
        for name, parameter in model.named_parameters():
            assert (parameter.grad is not None and bool(parameter.grad.isfinite().all())) == parameter.requires_grad, name


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_the_adaptive_softmax_is_float32_under_autocast(variant, precision):
    """Rare words too, whose clusters torch does not compute in a lower precision; on a GPU its softmax there is float32 by itself."""
    if variant in POINTERS:
        pytest.skip("a pointer has a full softmax")
    model, tokens = make_model(variant, torch.float32, **ADAPTIVE), sentences()
    features = model.extract_features(tokens)[0].flatten(0, 1).detach()
    expected = model.output.nll(features, tokens.flatten())
    with torch.autocast("cpu", torch.bfloat16):
        rounded = features.to(precision).requires_grad_()
        found = model.output.nll(rounded, tokens.flatten())
        found.backward()
        log_probs = model.output(features.to(precision))
    assert found.dtype == log_probs.dtype == torch.float32
    assert rounded.grad.isfinite().all()
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=0)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(len(features)), rtol=0, atol=1e-5)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_models_of_half_precision_run(variant, precision):
    """What fairseq-generate --fp16 makes of the models that --lm-path loads; what is computed in float32 goes back to theirs."""
    model, tokens = make_model(variant, torch.float32), sentences()
    exact = torch.log_softmax(model(tokens)[0], dim=-1)
    logits = model.to(precision)(tokens)[0]
    assert logits.dtype == precision
    assert (exact - torch.log_softmax(logits.float(), dim=-1)).abs().mean() < 0.1


@pytest.mark.parametrize("targets", [[2, 3], [7, 2, 8], [18, 2], [7, 18]])
def test_gradients_of_the_adaptive_softmax_are_those_of_its_log_probabilities(targets):
    model = make_model("plain", **ADAPTIVE)
    features, targets = model.extract_features(sentences())[0][0, : len(targets)].detach(), torch.tensor(targets)
    gradients = []
    for loss in (model.output.nll(features, targets), -model.output.log_probs(features).gather(1, targets.unsqueeze(1)).sum()):
        model.zero_grad()
        loss.backward()
        gradients.append([loss.detach(), *(parameter.grad.clone() for parameter in model.output.parameters())])
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


def train_with_torchs_ddp(rank: int, meeting: str, variants: list[str]) -> None:
    """One of two processes. Only the first one has words that are rare; the second has blank lines."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", world_size=2, rank=rank)
    tokens = torch.tensor([[EOS, 17, 9, 4], [EOS, 12, 13, 14]] if rank == 0 else [[EOS]])
    for variant in variants:
        model = make_model(variant, **ADAPTIVE)
        parallel = torch.nn.parallel.DistributedDataParallel(Loss(model))
        for _ in range(2):  # what is missing in one pass is found by the next
            parallel(tokens).backward()
        own = [parameter.grad for parameter in model.parameters() if parameter.requires_grad]
        for gradient in own:
            other = gradient.clone()
            torch.distributed.broadcast(other, 0)
            assert torch.equal(gradient, other)
    torch.distributed.barrier()  # a process that ends first can abort the other
    torch.distributed.destroy_process_group()


class Loss(torch.nn.Module):
    """The forward pass of training, as DistributedDataParallel wants it."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model.output.nll(self.model.extract_features(tokens)[0].flatten(0, 1), tokens.flatten())


def test_torchs_ddp_trains_on_batches_that_use_unlike_parts(tmp_path):
    """Not by fairseq-train, which names a device to torch's DDP: on a CPU it refuses it, so --cpu needs --ddp-backend legacy_ddp."""
    variants = ["single", "combined", "averaging", "selection independent", "key-value-predict", "3-gram", "plain"]
    torch.multiprocessing.spawn(train_with_torchs_ddp, (str(tmp_path / "meeting"), variants), nprocs=2)


def test_a_step_leaves_the_state_it_was_given_as_it_was(variant):
    model, tokens = make_model(variant), sentences()
    _, state = model.step(tokens[:, 0], model.initial_state(len(tokens)))
    before = [part.clone() for part in (*state.recurrent, *state.memory)]
    model.step(tokens[:, 1], state)
    for old, new in zip(before, (*state.recurrent, *state.memory), strict=True):
        assert torch.equal(old, new)


def test_the_state_of_single_does_not_grow():
    model, tokens = make_model("single"), sentences()
    sizes = set()
    state = model.initial_state(len(tokens))
    for token in tokens.unbind(1):
        _, state = model.step(token, state)
        sizes.add(sum(part.numel() for part in (*state.recurrent, *state.memory)))
    assert len(sizes) == 1


def test_steps_survive_scores_far_apart():
    """Running sums of exp(score) must not overflow or vanish: float32, scores of a thousand."""
    model = make_model("single", torch.float32)
    with torch.no_grad():
        model.reader.score_vector.mul_(2000)
    tokens = sentences()
    full = model(tokens)[0]
    state = model.initial_state(len(tokens))
    for t, token in enumerate(tokens.unbind(1)):
        logits, state = model.step(token, state)
        torch.testing.assert_close(logits, full[:, t], rtol=0, atol=1e-4)


def test_low_precision_stays_near(variant):
    model, tokens = make_model(variant, torch.float32), sentences()
    exact = torch.log_softmax(model(tokens)[0], dim=-1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near = torch.log_softmax(model(tokens)[0].float(), dim=-1)
    assert 1e-6 < (exact - near).abs().mean() < 0.05


def test_bfloat16_lstm_rounds_products_alone(monkeypatch):
    """With float32 in place of bfloat16 it is torch's LSTM, values and gradients; with bfloat16 the state keeps more bits than that."""
    layers = make_model("plain", torch.float32).lstm
    inputs = torch.randn(3, 9, SIZE, requires_grad=True)
    before = (torch.randn(3, LAYERS, SIZE, requires_grad=True), torch.randn(3, LAYERS, SIZE, requires_grad=True))
    leaves = [inputs, *before, *(weight for name, weight in layers.named_parameters() if not name.startswith("bias_hh"))]

    def results(low: bool) -> list[torch.Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
            states, (hidden, cell) = layers.read(inputs, before)
        loss = (states * states).sum() + (hidden * cell).sum()
        return [states, hidden, cell, *torch.autograd.grad(loss, leaves)]

    rounded = results(low=True)
    assert {part.dtype for part in rounded} == {torch.float32}
    assert not torch.equal(rounded[0], rounded[0].bfloat16().float())
    monkeypatch.setattr(lstm, "DTYPE", torch.float32)
    for low, own, torchs in zip(rounded, results(low=True), results(low=False), strict=True):
        torch.testing.assert_close(own, torchs, rtol=1e-4, atol=1e-5)
        assert 1e-4 < (low - torchs).norm() / torchs.norm() < 0.03


@pytest.mark.parametrize("name", ["bfloat16", "float32"])
def test_an_lstm_skips_what_is_after_the_rows(name):
    """Outputs, the states after and all gradients are those of each row by itself, cut to its length."""
    dtype = getattr(torch, name)
    lengths = torch.tensor([4, 9, 1, 9, 6])
    inputs, hidden, cell = torch.randn(5, 9, SIZE), torch.randn(5, SIZE), torch.randn(5, SIZE)
    weights = torch.randn(4 * SIZE, SIZE) / 4, torch.randn(4 * SIZE, SIZE) / 4, torch.randn(4 * SIZE)
    values = [value.requires_grad_() for value in (inputs, *weights, hidden, cell)]
    factors, last_factors = torch.randn(5, 9, SIZE), torch.randn(2, 5, SIZE)

    def gradients(loss: torch.Tensor) -> tuple:
        return torch.autograd.grad(loss, values)

    outputs, *last = lstm_over_time(*values, lengths=lengths, dtype=dtype)
    assert all(not outputs[row, length:].any() for row, length in enumerate(lengths))
    whole = gradients((outputs * factors).sum() + (torch.stack(last) * last_factors).sum())
    loss = torch.zeros(())
    for row, length in enumerate(lengths.tolist()):
        one = slice(row, row + 1)
        alone, *after = lstm_over_time(inputs[one, :length], *weights, hidden[one], cell[one], dtype=dtype)
        tolerance = {"rtol": 1e-5, "atol": 1e-5} if name == "float32" else {"rtol": 0.02, "atol": 0.02}
        torch.testing.assert_close(outputs[one, :length], alone, **tolerance)
        for found, expected in zip(last, after, strict=True):
            torch.testing.assert_close(found[one], expected, **tolerance)
        loss = loss + (alone * factors[one, :length]).sum() + (torch.cat(after) * last_factors[:, row]).sum()
    for found, expected in zip(whole, gradients(loss), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4 if name == "float32" else 0.05, atol=1e-4 if name == "float32" else 0.2)


@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize("variant", ["plain", "single", "combined", "averaging"])
def test_a_padded_batch_has_the_loss_and_gradients_of_its_sentences(monkeypatch, variant, low):
    monkeypatch.setattr(lstm, "MOST_WORDS", 1.0)  # skip even where that is slower
    model = make_model(variant, torch.float32)
    lengths = [3, 9, 1, 7]
    tokens = torch.randint(4, V, (len(lengths), max(lengths)))
    for row, length in enumerate(lengths):
        tokens[row, length:] = model.embedding.padding_idx

    def loss(rows: torch.Tensor) -> torch.Tensor:
        present = rows != model.embedding.padding_idx
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
            return model.output.nll(model.extract_features(rows)[0][present], rows[present])

    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    whole = loss(tokens)
    alone = sum(loss(tokens[row : row + 1, :length]) for row, length in enumerate(lengths))
    torch.testing.assert_close(whole, alone, rtol=1e-2 if low else 1e-5, atol=0)
    for found, expected in zip(torch.autograd.grad(whole, parameters), torch.autograd.grad(alone, parameters), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=(0.05 if low else 1e-4) * max(1.0, expected.abs().max().item()))


def test_dropout_is_at_the_three_places_and_not_in_the_memory():
    model = make_model("single", dropout_in=0.5, dropout_between=0.4, dropout_out=0.3).train()
    assert model.regularisation == Regularisation(dropout_in=0.5, dropout_between=0.4, dropout_out=0.3)
    assert model.lstm.dropout == 0.4
    memory_only = make_model("single", dropout_out=0.9).train()
    tokens = sentences()
    states = memory_only.lstm(memory_only.embedding(tokens))[0]
    kept = memory_only.reader(states, tokens)[0]
    dropped = memory_only.extract_features(tokens)[0]
    surviving = dropped != 0
    # dropout scales by 1 / (1 - p), p in steps of 2^-16, after the reader
    torch.testing.assert_close(dropped[surviving], kept[surviving] / 0.1, rtol=1e-4, atol=0)


def test_parameter_counts_of_the_papers():
    ptb = make_model("single", torch.float32, size=650, vocabulary=10_001)
    # embeddings and output (tied) + 2 LSTM layers with one bias a gate + W_s, v_s + W_c, b_c + b
    assert ptb.parameter_count() == 10_001 * 650 + 2 * 4 * (2 * 650 * 650 + 650) + (650 * 650 + 650) + (1300 * 650 + 650) + 10_001
    assert round(ptb.parameter_count() / 1e6, 1) == 14.5
    assert round(make_model("averaging", torch.float32, size=650, vocabulary=10_001).parameter_count() / 1e6, 1) == 14.1
    combined = make_model("combined", torch.float32, size=650, vocabulary=10_001)
    assert combined.parameter_count() - ptb.parameter_count() == 650 * 650  # W_q


@pytest.mark.parametrize(
    ("variant", "hidden"),
    [("attention", 296), ("key-value", 560), ("key-value-predict", 780), ("2-gram", 564), ("3-gram", 786)],
)
def test_parameter_counts_of_daniluk(variant, hidden):
    """Table 2: 23.9 M without the word vectors, V = 77,000. (The table's 834 for key-value-predict gives 25.6 M; 780 fits.)"""
    sizes = {"decoder_embed_dim": 300, "decoder_hidden_size": hidden, "decoder_layers": 1, "output_layer": "untied"}
    model = make_model(variant, torch.float32, vocabulary=77_000, **sizes)
    assert (model.parameter_count() - 77_000 * 300) / 1e6 == pytest.approx(23.9, abs=0.2)


def test_initialisation():
    model = make_model("single", torch.float32)
    model.initialise(0.05)
    for name, parameter in model.named_parameters():
        if "bias" not in name:
            assert parameter.abs().max() <= 0.05
    assert torch.equal(model.lstm.bias_ih_l1, torch.tensor([0.0] * SIZE + [1.0] * SIZE + [0.0] * 2 * SIZE))
    assert not model.lstm.bias_hh_l1.any()
    assert not model.embedding.weight[PAD].any()
    assert not model.reader.merge.bias.any()


def test_untied_output_and_the_refusal_to_tie_unequal_sizes():
    model = make_model("single", output_layer="untied", decoder_embed_dim=4)
    assert model.output.weight is not model.embedding.weight
    assert model(sentences())[0].shape == (5, 40, V)
    with pytest.raises(ValueError, match="4, the features 6"):
        make_model("single", decoder_embed_dim=4)


def test_the_window_of_kvp_is_scored_in_float32_under_autocast():
    """The gradients of a window's scores sum to 0: in bfloat16 a fifth of W_h's gradient, which comes from their sum, is rounding."""
    torch.manual_seed(0)
    reader = KeyValuePredictReader(24, "key-value-predict", 5)
    states, outer, tokens = torch.randn(4, 20, 24), torch.randn(4, 20, 8), torch.zeros(4, 20, dtype=torch.long)
    for weight in reader.parameters():
        torch.nn.init.uniform_(weight, -0.05, 0.05)
    gradients = []
    for low in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            features, _ = reader(states, tokens)
        gradients += torch.autograd.grad((features.float() * outer).sum(), reader.current_key.weight)
    assert (gradients[1] - gradients[0]).norm() < 0.02 * gradients[0].norm()


@pytest.mark.parametrize(("variant", "options"), [("averaging", {}), ("single", {}), ("RWA", {})])
@torch.no_grad()
def test_sums_over_many_words_do_not_lose_words_in_bfloat16(variant, options):
    """Weights of fairseq's --bf16: 256 + 1 is 256 in bfloat16, so a mean over more words would stop to change."""
    model = make_model(variant, torch.bfloat16, **options)
    states, tokens = torch.ones(1, 700, SIZE, dtype=torch.bfloat16), torch.full((1, 700), 4)
    if variant == "RWA":
        state = model.state_after(tokens, model.initial_state(1)).recurrent
        expected = make_model(variant, torch.float32, **options)
        expected.load_state_dict(model.state_dict())
        exact = expected.state_after(tokens, expected.initial_state(1)).recurrent
        for part, of_exact in zip(state[2:], exact[2:], strict=True):
            torch.testing.assert_close(part, of_exact, rtol=0.1, atol=0.05)
        return
    memory = model.reader.empty_memory(states[:, 0])
    for begin in range(0, 700, 7):
        memory = model.reader.advance(states[:, begin : begin + 7], tokens, memory)
    if variant == "averaging":
        assert float(memory[1]) == 701
        assert memory[0].tolist() == [[700.0] * SIZE]
    else:
        torch.testing.assert_close(memory[2] / memory[1], torch.ones(1, SIZE))
        torch.testing.assert_close(memory[1], torch.full((1, 1), 700.0), rtol=0.01, atol=0)
    features, _ = model.reader(states, tokens, memory)
    assert features.dtype == torch.bfloat16
