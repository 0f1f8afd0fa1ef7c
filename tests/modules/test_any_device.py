"""On a device that is not the CPU: the same values and gradients, and no tensor left behind on the CPU."""

from __future__ import annotations

import math

import pretend_device
import pytest
import torch
from lm_files import OPTIONS, write_dictionary
from pretend_device import NAME, PretendTensor, on_pretend_device
from small_models import VARIANTS, WITHOUT_WEIGHTS, V, make_model, sentences, set_limits
from torch import Tensor

from attlm_fairseq.attention.weights import read_batch
from attlm_fairseq.checkpoints.reading import TrainedModel
from attlm_fairseq.checkpoints.vocabulary import EOS, PAD, Vocabulary
from attlm_fairseq.criterions.lm_cross_entropy import attention_entropy
from attlm_fairseq.decoding.decoder_lm import DecoderLM
from attlm_fairseq.decoding.stateful_neural_lm import StatefulNeuralLM
from attlm_fairseq.models._decoder import MemoryDecoder
from attlm_fairseq.modules.kernels.low_precision_steps import stepping_model
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer
from attlm_fairseq.tasks._carried_state import CarriedState

WORDS = [f"w{number}" for number in range(V - 4)]
pytestmark = pytest.mark.usefixtures("pretended_device")
MODELS = {
    **{name: {} for name in VARIANTS},
    **{f"{name}, adaptive": {"output_layer": "adaptive", "adaptive_cutoffs": "7"} for name in ("plain", "combined", "selection tied")},
    "plain, DOC": {"softmaxes": "2,1"},
}


class Padding:
    """As much of a dictionary as the decoder asks for."""

    symbols = ()

    def pad(self) -> int:
        return PAD


def as_on_processor(value: Tensor) -> Tensor:
    return value.raw if isinstance(value, PretendTensor) else value


def assert_same(found: Tensor, expected: Tensor, tolerance: float = 2e-5) -> None:
    assert isinstance(found, PretendTensor)
    torch.testing.assert_close(found.raw.double(), expected.double(), rtol=tolerance, atol=tolerance)


def test_contexts_of_devices_apply_to_torch_tensor_where_the_other_device_is_pretended():
    with torch.device("meta"):
        assert torch.tensor([]).is_meta
        assert torch.empty(0).is_meta


@pytest.fixture(params=MODELS)
def models(request):
    """A model on the CPU and on the other device."""
    options = MODELS[request.param]
    model = make_model(request.param.rpartition(", ")[0] if options else request.param, torch.float32, size=12, **options)
    return model, on_pretend_device(model)


@pytest.fixture
def vocabulary(tmp_path) -> Vocabulary:
    return Vocabulary.read(write_dictionary(tmp_path / "dict.txt", WORDS))


def trained(model: torch.nn.Module, vocabulary: Vocabulary, tmp_path) -> TrainedModel:
    return TrainedModel(model, vocabulary, tmp_path / "lm.pt", OPTIONS["_name"], "")


def test_the_other_device_is_one():
    here, there = torch.ones(3, 3), torch.ones(3, 3).to(NAME)
    assert there.device.type == NAME
    assert there.cpu().device.type == "cpu"
    for mixed in (lambda: here @ there, lambda: there + here, lambda: torch.cat((here, there)), lambda: there.add_(here)):
        with pytest.raises(RuntimeError, match=f"on {NAME} and on the CPU"):
            mixed()
    with pytest.raises(TypeError, match="copy it to the CPU"):
        there.numpy()
    with torch.autocast(NAME, torch.bfloat16):
        assert (there @ there).dtype == torch.bfloat16
        assert (there @ there).exp().dtype == torch.float32


def test_next_to_a_gpu_it_is_not_registered(monkeypatch):
    def fail(*unused: object, **named: object) -> None:
        raise AssertionError("registered")

    monkeypatch.setattr(pretend_device.backend_registration, "_setup_privateuseone_for_python_backend", fail)
    with pytest.raises(AssertionError, match="registered"):
        pretend_device.register()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    pretend_device.register()


def test_the_rest_of_the_process_does_not_see_it():
    [batch] = torch.utils.data.DataLoader([1.0, 2.0], batch_size=2, pin_memory=True)  # as fairseq's iterators
    assert batch.tolist() == [1.0, 2.0]
    assert batch.device.type == "cpu"


@pytest.mark.parametrize("compute_dtype", ["float32", "bf16"])
def test_training(monkeypatch, models, compute_dtype):
    set_limits(monkeypatch, "cuda", queries=5)  # what is read is more than the largest pieces
    tokens = sentences(count=2, longest=8)
    target = torch.cat((tokens[:, 1:], torch.full((2, 1), EOS)), dim=1)
    tokens[1, 5:], target[1, 5:] = PAD, PAD
    outcomes = []
    for model, device in zip(models, ("cpu", NAME), strict=True):
        model.train()
        decoder = MemoryDecoder(Padding(), model, compute_dtype)
        there = target.to(device)
        loss, extra = decoder(tokens.to(device), target=there, need_weights=True)
        if extra["attn"] is not None:
            loss = loss + 0.1 * attention_entropy(extra["attn"], there != PAD)
        loss.backward()
        model.eval()
        outcomes.append((loss.detach(), decoder(tokens.to(device))[0].detach()))
    (loss, logits), (loss_there, logits_there) = outcomes
    # the two autocasts round at different places
    assert_same(loss_there, loss, 1e-5 if compute_dtype == "float32" else 2e-2)
    if compute_dtype == "float32":
        assert_same(logits_there, logits)
        for here, there in zip(models[0].parameters(), models[1].parameters(), strict=True):
            if here.requires_grad:
                assert_same(there.grad, here.grad, 1e-3)
    else:
        for here, there in zip(models[0].parameters(), models[1].parameters(), strict=True):
            if here.requires_grad and here.grad.norm() > 1e-3:
                similarity = torch.cosine_similarity(as_on_processor(there.grad).flatten(), here.grad.flatten(), dim=0)
                assert there.grad.dtype == torch.float32
                assert similarity > 0.95


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_training_with_weights_of_lower_precision(models, dtype):
    """As fairseq's own --fp16 and --bf16 do, which work on GPUs alone."""
    model = models[0].to(dtype)
    there = on_pretend_device(model)
    tokens = sentences(count=2, longest=8)
    losses = []
    for one, device in ((model.float().train(), "cpu"), (there.train(), NAME)):
        loss, extra = MemoryDecoder(Padding(), one)(tokens.to(device), target=tokens.roll(-1, 1).to(device), need_weights=True)
        if extra["attn"] is not None:
            loss = loss + attention_entropy(extra["attn"], torch.ones_like(tokens, dtype=torch.bool).to(device))
        losses.append(loss)
    losses[1].backward()
    assert all(weight.grad.dtype == dtype and weight.grad.raw.isfinite().all() for weight in there.parameters() if weight.requires_grad)
    assert_same(losses[1].detach(), losses[0].detach(), 2e-2)


def test_documents(models):
    """State and memory carried between batches, one of them put down as a checkpoint does and taken up again."""
    tokens = sentences(count=3, longest=12)
    outcomes = []
    for model, device in zip(models, ("cpu", NAME), strict=True):
        decoder = MemoryDecoder(Padding(), model)
        carried, losses = CarriedState(), []
        for number, piece in enumerate(tokens.split(4, dim=1)):
            # the second row's document ends with the second piece, and another begins
            begins, ends = torch.tensor([number == 0, number != 1, number == 0]), torch.tensor([False, number == 1, False])
            where = {"rows": torch.arange(3).to(device), "starts": begins.to(device), "ends": ends.to(device)}
            losses.append(decoder(piece.to(device), target=piece.to(device), carried=carried, **where)[0].detach())
            saved = carried.state_dict()
            assert all(value.device.type == "cpu" for value in (*saved["rows"], *saved["recurrent"], *saved["memory"]))
            carried = CarriedState()
            carried.load_state_dict(saved)
        outcomes.append(losses)
    for found, expected in zip(outcomes[1], outcomes[0], strict=True):
        assert_same(found, expected)


def test_steps_in_float32_are_the_models_own():
    """A GPU has no use for weights in the layout that is fastest on a CPU."""
    model = on_pretend_device(make_model("single", torch.float32))
    assert stepping_model(model, "float32") is model


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_rescoring(models, vocabulary, tmp_path, precision):
    texts = [[], WORDS[:1], WORDS[1:5], [WORDS[0], "unheard-of"]]
    scores = [
        NeuralScorer([trained(model, vocabulary, tmp_path)], compute=DeviceConfig(precision=precision, memory=1 << 28)).score(texts)
        for model in models
    ]
    for here, there in zip(*scores, strict=True):
        tolerance = 1e-5 if precision == "float32" else 0.2
        assert here.oov == there.oov
        assert all(math.isclose(a, b, abs_tol=tolerance) for a, b in zip(here.log_probs, there.log_probs, strict=True))


def test_decoders(models, vocabulary, tmp_path):
    """Tokens and rows may be on either device; distributions are on the model's."""
    outcomes = []
    for model, device in zip(models, ("cpu", NAME), strict=True):
        lm = DecoderLM(trained(model, vocabulary, tmp_path))
        states, found = lm.start(3), []
        for tokens, where, rows in (([EOS] * 3, device, [2, 0, 0, 1]), ([5, 6, 5, 7], "cpu", [3, 1]), ([8, 9], device, [0, 1])):
            log_probs, states = lm.step(states, torch.tensor(tokens).to(where))
            states = lm.select(states, torch.tensor(rows).to(where))
            found.append(log_probs)
        states = lm.read(states, torch.tensor([[4, 5, 6]] * 2))
        log_probs, _ = lm.step_each([states.row(0), lm.start(), states.row(1)], [7, EOS, 8])
        outcomes.append([*found, log_probs])
    for there, here in zip(outcomes[1], outcomes[0], strict=True):
        assert_same(there, here)


def test_cached_lms(models, vocabulary, tmp_path):
    scores: list[list[float]] = []
    for model in models:
        lm = StatefulNeuralLM(DecoderLM(trained(model, vocabulary, tmp_path)), cache_bytes=2_000)  # so little that states leave
        scores.append([])
        for text in (WORDS[:4], WORDS[:2], [], WORDS[3:6]):
            history = lm.start()
            for token in (*map(lm.token, text), lm.end):
                value, history = lm.score(history, token)
                scores[-1].append(value)
    assert all(math.isclose(here, there, abs_tol=2e-5) for here, there in zip(*scores, strict=True))


@pytest.mark.parametrize("models", [name for name in MODELS if name.partition(",")[0] not in WITHOUT_WEIGHTS], indirect=True)
def test_attention(models, vocabulary, tmp_path):
    ids = [[5, 6, 7], [], [8]]
    here, there = (read_batch(trained(model, vocabulary, tmp_path), ids, True) for model in models)
    assert torch.equal(here[1], there[1])  # the mask
    for expected, found in zip(here[::2], there[::2], strict=True):
        assert found.device.type == "cpu"
        for row, sentence in enumerate(ids):
            torch.testing.assert_close(found[row, : len(sentence) + 1], expected[row, : len(sentence) + 1], rtol=0, atol=2e-5)
