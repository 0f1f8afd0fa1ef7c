"""DecoderLM for every model family: steps against the full pass over each hypothesis, however the rows move."""

from __future__ import annotations

import copy
import pickle
import random
import shutil
import subprocess
import sys

import pytest
import torch
from lm_files import VARIANTS, write_checkpoint

from attlm_fairseq.decoding.decoder_lm import DecoderLM
from attlm_fairseq.decoding.fairseq_lms import LoadOptions, load_lm
from attlm_fairseq.decoding.log_linear_lm import LogLinearLM
from attlm_fairseq.errors import InputError
from attlm_fairseq.modules.families import FAMILIES
from attlm_fairseq.modules.kernels.int8_linear import Int8Linear
from attlm_fairseq.modules.kernels.low_precision import Bfloat16Linear
from attlm_fairseq.modules.kernels.products import FixedLinear
from attlm_fairseq.modules.recurrence import LSTM
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer
from attlm_fairseq.verbs.export import export_model

WORDS = [f"w{number}" for number in range(20)]
V = 4 + len(WORDS)
MODELS = [*FAMILIES, *VARIANTS]


def load(tmp_path, name: str, seed: int = 1) -> DecoderLM:
    options = VARIANTS.get(name, {"_name": name})
    return DecoderLM.load(write_checkpoint(tmp_path / name / "lm.pt", WORDS, seed, **options))


@pytest.fixture(params=MODELS)
def lm(tmp_path, request) -> DecoderLM:
    return load(tmp_path, request.param)


def full_pass(lm: DecoderLM, prefix: list[int]) -> torch.Tensor:
    """ln p of what follows ``</s> w_1 .. w_n``, from the whole sequence at once."""
    with torch.inference_mode():
        return torch.log_softmax(lm.model(torch.tensor([prefix]))[0][0, -1], dim=-1)


def test_steps_are_the_full_pass_while_rows_are_reordered_duplicated_and_dropped(lm):
    random_ = random.Random(1)
    prefixes = [[] for _ in range(5)]
    states = lm.start(5)
    for step in range(15):
        tokens = [lm.eos if step == 0 else random_.randrange(3, V) for _ in prefixes]
        prefixes = [[*prefix, token] for prefix, token in zip(prefixes, tokens, strict=True)]
        log_probs, states = lm.step(states, torch.tensor(tokens))
        assert log_probs.shape == (len(prefixes), V)
        torch.testing.assert_close(log_probs, torch.stack([full_pass(lm, prefix) for prefix in prefixes]), rtol=0, atol=1e-5)
        rows = random_.choices(range(len(prefixes)), k=random_.randint(1, 6))
        prefixes, states = [prefixes[row] for row in rows], lm.select(states, torch.tensor(rows))


def test_a_step_changes_no_earlier_state(lm):
    _, states = lm.step(lm.start(2), torch.tensor([lm.eos, lm.eos]))
    before, _ = lm.step(states, torch.tensor([5, 6]))
    lm.step(lm.step(states, torch.tensor([7, 7]))[1], torch.tensor([8, 8]))
    again, _ = lm.step(states, torch.tensor([5, 6]))
    assert torch.equal(before, again)


def test_a_text_read_at_once_leaves_the_state_of_its_steps(lm):
    tokens = torch.tensor([[lm.eos, 5, 6, 7, 8, 9, 5, 6, 10, 11], [lm.eos, 9, 9, 4, 4, 4, 4, 5, 5, 5]])
    _, stepped = lm.step(lm.start(2), tokens[:, 0])
    for column in tokens[:, 1:].T:
        _, stepped = lm.step(stepped, column)
    read = lm.read(lm.read(lm.start(2), tokens[:, :3]), tokens[:, 3:])
    for part, of_steps in zip((*read.recurrent, *read.memory), (*stepped.recurrent, *stepped.memory), strict=True):
        torch.testing.assert_close(part, of_steps, rtol=0, atol=1e-5)
        assert part.untyped_storage().nbytes() == part.numel() * part.element_size()


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_in_lower_precision_too(tmp_path, precision):
    """So that a state that a cache has dropped is the same when it is computed again."""
    lm = DecoderLM.load(write_checkpoint(tmp_path / "lm.pt", WORDS, decoder_embed_dim=64, decoder_hidden_size=64), precision=precision)
    tokens = torch.tensor([[lm.eos, 5, 6, 7, 8]])
    stepped = lm.start()
    for column in tokens.T:
        _, stepped = lm.step(stepped, column)
    read = lm.read(lm.start(), tokens)
    assert all(map(torch.equal, (*read.recurrent, *read.memory), (*stepped.recurrent, *stepped.memory)))


def test_states_by_prefix_are_stepped_together_whatever_their_lengths(lm):
    """A cache as prefix decoders keep it: one state a prefix, extended in any mixture."""
    random_ = random.Random(2)
    cache = {(): lm.start()}
    for _ in range(12):
        prefixes = random_.choices(list(cache), k=random_.randint(1, 7))
        tokens = [random_.randrange(3, V) if prefix else lm.eos for prefix in prefixes]
        log_probs, states = lm.step_each([cache[prefix] for prefix in prefixes], tokens)
        for prefix, token, row, state in zip(prefixes, tokens, log_probs, states, strict=True):
            torch.testing.assert_close(row, full_pass(lm, [*prefix, token]), rtol=0, atol=1e-5)
            cache[(*prefix, token)] = state
    assert len({len(prefix) for prefix in cache}) > 3
    for state in cache.values():
        assert len(state.recurrent[0]) == 1
        for part in (*state.recurrent, *state.memory):  # nothing of the batch it was computed in is kept alive
            assert part.untyped_storage().nbytes() <= max(1, part.numel()) * part.element_size()


def test_join_needs_one_length_of_memory(lm):
    one = lm.step(lm.start(), torch.tensor([lm.eos]))[1]
    two = lm.step(one, torch.tensor([4]))[1]
    together = lm.join([one, lm.select(one, torch.tensor([0, 0]))])
    log_probs, _ = lm.step(together, torch.tensor([5, 6, 5]))
    torch.testing.assert_close(log_probs[1], full_pass(lm, [lm.eos, 6]), rtol=0, atol=1e-5)
    if one.shape == two.shape:
        log_probs, _ = lm.step(lm.join([one, two]), torch.tensor([5, 6]))
        torch.testing.assert_close(log_probs[1], full_pass(lm, [lm.eos, 4, 6]), rtol=0, atol=1e-5)
    else:
        with pytest.raises(ValueError, match="unlike numbers of words"):
            lm.join([one, two])


def test_which_families_have_memories_that_grow(tmp_path):
    grows = {}
    for name in MODELS:
        lm = load(tmp_path, name)
        states = lm.step(lm.start(), torch.tensor([lm.eos]))[1]
        grows[name] = states.shape != lm.step(states, torch.tensor([4]))[1].shape
    pointers = {"pointer_lstm_lm", "pointer_mogrifier_lm"}
    assert {name for name, grown in grows.items() if grown} == {"combined", "amsrn_lm", "kvp_lstm_lm", "lstmn_lm", *pointers}


def test_what_a_step_returns_can_be_changed_in_place(lm):
    """As a decoder does that forbids words."""
    log_probs, states = lm.step(lm.start(2), torch.tensor([lm.eos, lm.eos]))
    log_probs[:, [0, 1]] = -torch.inf
    log_probs += 1.0
    for part in (log_probs, *lm.step(states, torch.tensor([4, 5]))[:1], lm.read(states, torch.tensor([[4], [5]])).memory):
        for tensor in part if isinstance(part, tuple) else [part]:
            assert not tensor.is_inference()
            assert not tensor.requires_grad


def test_files_may_be_named_by_strings(tmp_path):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    expected, _ = DecoderLM.load(path).step(DecoderLM.load(path).start(), torch.tensor([2]))
    for named in (DecoderLM.load(str(path)), DecoderLM.load(str(path), str(tmp_path / "dict.txt"))):
        assert torch.equal(named.step(named.start(), torch.tensor([2]))[0], expected)


@pytest.mark.parametrize("exported", [False, True])
def test_a_model_is_saved_as_a_folder(tmp_path, exported):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    if exported:
        export_model(path, path := tmp_path / "exported")
    lm = DecoderLM.load(path)
    lm.save(tmp_path / "folder")
    again = DecoderLM.load(tmp_path / "folder")
    assert again.vocabulary == lm.vocabulary
    tokens = torch.tensor([lm.eos])
    assert torch.equal(again.step(again.start(), tokens)[0], lm.step(lm.start(), tokens)[0])


def rounded_weights(layer: torch.nn.Linear) -> torch.nn.Linear:
    """With weights that 8 bits and a scale for each output can hold, as float32."""
    scales = layer.weight.abs().amax(dim=1, keepdim=True) / 127
    layer.weight.data = (layer.weight / scales).round() * scales
    return layer


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_a_product_of_int8_is_exact_but_for_the_rounding_of_its_inputs(rows):
    """Whose steps are 1 / 127.5 of a row's largest value, 1 / 63.5 on CPUs without VNNI."""
    torch.manual_seed(1)
    layer = rounded_weights(torch.nn.Linear(650, 70))
    inputs = torch.randn(rows, 2, 650) * torch.logspace(-3, 3, rows).view(-1, 1, 1)
    inputs[0, 1] = 0
    product = Int8Linear(layer.weight, layer.bias)
    steps = inputs.abs().amax(dim=2, keepdim=True) / (63.5 if product.seven_bits else 127.5)
    bound = 0.51 * steps * layer.weight.abs().sum(dim=1) + 1e-5 * steps + 1e-6
    expected = torch.nn.functional.linear(inputs.double(), layer.weight.double(), layer.bias.double())
    for made in (product, pickle.loads(pickle.dumps(product))):
        assert ((made(inputs) - expected).abs() <= bound + 1e-5 * expected.abs()).all()
    assert ((product(inputs) - expected).abs() / bound).mean() < 0.025  # errors of both signs add up to little
    for row in range(rows):
        assert torch.equal(product(inputs)[row], product(inputs[row]))  # whatever it is computed with


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
@pytest.mark.parametrize("name", MODELS)
def test_low_precision_is_close_while_rows_move(tmp_path, name, precision):
    """And its states are those of float32, so that one model continues the other's."""
    exact = load(tmp_path, name)
    lm = DecoderLM(exact.trained, precision)
    random_ = random.Random(3)
    states, expected = lm.start(4), exact.start(4)
    assert {part.dtype for part in states.recurrent} <= {torch.float32, torch.bool}  # a mask of slots
    tokens = torch.full((4,), lm.eos)
    differ = 0.0
    for _ in range(8):
        log_probs, states = lm.step(states, tokens)
        wanted, expected = exact.step(expected, tokens)
        torch.testing.assert_close(log_probs, wanted, rtol=0, atol=0.25)
        differ = max(differ, (log_probs - wanted).abs().max().item())
        assert log_probs.exp().sum(dim=1).tolist() == pytest.approx([1.0] * len(log_probs), abs=1e-4)
        rows = torch.tensor(random_.choices(range(len(tokens)), k=4))
        states, expected = lm.select(states, rows), exact.select(expected, rows)
        tokens = torch.tensor([random_.randrange(3, V) for _ in range(4)])
    assert differ > 1e-6  # it is another precision
    torch.testing.assert_close(exact.step(states, tokens)[0], exact.step(expected, tokens)[0], rtol=0, atol=0.25)


@pytest.mark.parametrize(("precision", "kind"), [("float32", FixedLinear), ("bfloat16", Bfloat16Linear), ("int8", Int8Linear)])
@pytest.mark.parametrize("name", ["attentive_lstm_lm", "combined", "amsrn_lm", "mogrifier_lstm_lm"])
def test_all_products_of_a_step_are_of_the_precision(tmp_path, name, precision, kind):
    lm = DecoderLM(load(tmp_path, name).trained, precision)
    kinds = {type(module) for module in lm.stepping.modules()}
    assert kinds & {FixedLinear, Bfloat16Linear, Int8Linear, torch.nn.Linear, LSTM} == {kind}


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_every_adapter_takes_the_precision(tmp_path, precision):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    lm = DecoderLM.load(path, precision=precision)
    assert lm.precision == precision
    log_probs, _ = lm.step(lm.start(), torch.tensor([lm.eos]))
    history = LogLinearLM.load(path, precision=precision)
    assert history.score(history.start(), "w3")[0] == pytest.approx(log_probs[0, 7].item(), abs=1e-6)
    fused = load_lm(path, lm.vocabulary, LoadOptions(precision=precision)).lm
    assert torch.equal(fused.step(fused.start(), torch.tensor([lm.eos]))[0], log_probs)
    for copied in (copy.deepcopy(lm), pickle.loads(pickle.dumps(lm))):
        assert torch.equal(copied.step(copied.start(), torch.tensor([lm.eos]))[0], log_probs)


def test_the_deviation_is_measured(tmp_path):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    sentences = [["w1", "w2"], [], ["w5", "unheard-of", "w6", "w1"]]
    exact, lm = DecoderLM.load(path), DecoderLM.load(path, precision="int8")
    assert exact.deviation(sentences).largest == 0.0
    found = lm.deviation(sentences)
    assert (found.sentences, found.words) == (3, 6)
    sums = [[sum(one.sentence_log_probs([ids])[ids]) for ids in map(tuple, map(lm.vocabulary.ids, sentences))] for one in (exact, lm)]
    differences = [abs(one - other) for one, other in zip(*sums, strict=True)]
    assert found.largest == pytest.approx(max(differences), abs=1e-5)
    assert 0 < found.mean <= found.largest < 0.5
    scorer = NeuralScorer.load([path])
    assert sums[0] == pytest.approx([score.total for score in scorer.score(sentences)], abs=1e-4)


def test_another_precision_is_refused(tmp_path):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    with pytest.raises(ValueError, match="precision 'int4' is not one of: float32, bfloat16, int8"):
        DecoderLM.load(path, precision="int4")


def test_int8_on_another_cpu_is_refused(tmp_path, monkeypatch):
    """Such as ARM's."""
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    monkeypatch.setattr(type(torch.backends.quantized), "supported_engines", ["qnnpack", "none"])
    with pytest.raises(ValueError, match="precision int8 needs a model on an x86 CPU"):
        DecoderLM.load(path, precision="int8")


def test_every_state_needs_its_token(lm):
    with pytest.raises(ValueError, match="2 states and 1 tokens"):
        lm.step_each([lm.start(), lm.start()], [lm.eos])


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_tokens_and_rows_may_stay_on_the_cpu(tmp_path):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS, attention_score="combined")
    lm = DecoderLM.load(path, device="cuda")
    log_probs, states = lm.step(lm.start(2), torch.tensor([lm.eos, lm.eos]))
    log_probs, states = lm.step(lm.select(states, torch.tensor([1, 0, 0])), torch.tensor([4, 5, 6]))
    each, _ = lm.step_each([lm.start(), lm.select(states, torch.tensor([2]))], [lm.eos, 7])
    on_cpu = DecoderLM.load(path)
    torch.testing.assert_close(log_probs.cpu(), torch.stack([full_pass(on_cpu, [2, word]) for word in (4, 5, 6)]), rtol=0, atol=1e-4)
    torch.testing.assert_close(each.cpu()[1], full_pass(on_cpu, [2, 6, 7]), rtol=0, atol=1e-4)


def test_importing_it_imports_no_fairseq():
    script = "import sys, attlm_fairseq.decoding.decoder_lm; print([name for name in sys.modules if name.startswith('fairseq')])"
    assert subprocess.run([sys.executable, "-c", script], check=True, text=True, stdout=subprocess.PIPE).stdout == "[]\n"


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("name", MODELS)
def test_autocast_around_a_decoder_changes_nothing(tmp_path, name, precision):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS, **VARIANTS.get(name, {"_name": name}))
    tokens = torch.tensor([[2, 5, 6, 7], [2, 9, 4, 4]])

    def scores() -> list[torch.Tensor]:
        lm = DecoderLM.load(path, precision=precision)
        log_probs, states = lm.step(lm.read(lm.start(2), tokens), torch.tensor([5, 6]))
        return [log_probs, *states.recurrent, *states.memory]

    expected = scores()
    with torch.autocast("cpu", torch.bfloat16):
        found = scores()
    assert [part.dtype for part in found] == [part.dtype for part in expected]
    assert all(map(torch.equal, found, expected))


def test_a_default_of_half_precision_changes_nothing(tmp_path):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    expected = DecoderLM.load(path).model.state_dict()
    torch.set_default_dtype(torch.float16)
    try:
        found = DecoderLM.load(path).model.state_dict()
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(found[name], weights) and found[name].dtype == torch.float32 for name, weights in expected.items())


@pytest.mark.parametrize("exported", [False, True])
def test_another_model_under_the_same_name_is_not_saved(tmp_path, monkeypatch, exported):
    """Such as the next best checkpoint of a training. A program may go to another folder in between."""
    path, other = write_checkpoint(tmp_path / "lm.pt", WORDS), write_checkpoint(tmp_path / "other" / "lm.pt", WORDS, seed=2)
    if exported:
        for checkpoint in (path, other):
            export_model(checkpoint, checkpoint.with_suffix(""))
        path, other = path.with_suffix(""), other.with_suffix("")
    monkeypatch.chdir(tmp_path)
    lm = DecoderLM.load(path.name)
    monkeypatch.chdir(tmp_path / "other")
    lm.save(tmp_path / "saved")
    shutil.rmtree(path) if exported else path.unlink()
    other.rename(path)
    with pytest.raises(InputError, match="has changed since it was loaded: load it again"):
        lm.save(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_what_read_is_given_is_checked(tmp_path):
    lm = DecoderLM.load(write_checkpoint(tmp_path / "lm.pt", WORDS))
    for tokens, error, message in (
        ([[5]], TypeError, "the tokens are a list"),
        (torch.tensor([5.0]), TypeError, "the tokens are a tensor of torch.float32"),
        (torch.tensor([5]), ValueError, "found tokens of shape 1: expected at least one for each hypothesis"),
        (torch.zeros(1, 0, dtype=torch.long), ValueError, "found tokens of shape 1x0"),
        (torch.tensor([[5], [6]]), ValueError, "for 1 hypotheses"),
        (torch.tensor([[5, 99]]), IndexError, "token 99: expected 0 to"),
        (torch.tensor([[-1, 5]]), IndexError, "token -1: expected 0 to"),
    ):
        with pytest.raises(error, match=message):
            lm.read(lm.start(), tokens)
