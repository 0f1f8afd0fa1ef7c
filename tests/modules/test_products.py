"""Products by oneDNN's kernels: values, copies, and the sizes that they are rounded up to."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from small_models import V, make_model

from attlm_fairseq.attention.weights import read_batch
from attlm_fairseq.checkpoints.reading import TrainedModel
from attlm_fairseq.checkpoints.vocabulary import SPECIAL_SYMBOLS, Vocabulary
from attlm_fairseq.decoding.decoder_lm import DecoderLM
from attlm_fairseq.modules.kernels import products
from attlm_fairseq.modules.kernels.products import FixedLinear, FixedProduct, left_factor, product, product_into, round_up_to_few
from attlm_fairseq.modules.kernels.torch_settings import full_float32, without_cudnn
from attlm_fairseq.modules.recurrence import LSTM
from attlm_fairseq.scoring.neural.scoring_models import Float32Model
from attlm_fairseq.scoring.neural.sequences import read_sequences

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.2, torch.float64: 1e-12}


@pytest.mark.parametrize("kernels", ["all", "few rows", "none"])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("rows", [0, 1, 7, 33])
def test_products_are_those_of_matrices(monkeypatch, kernels, dtype, rows):
    if kernels == "none":
        monkeypatch.setattr(products, "_kernels_for", lambda dtype: False)
    monkeypatch.setattr(products, "_mkl_lacks_avx512", lambda: kernels == "all")
    monkeypatch.setattr(products, "COPIED_ROWS", 5)
    torch.manual_seed(1)
    weight, left = torch.randn(26, 13).to(dtype), torch.randn(rows, 13).to(dtype)
    expected = left.double() @ weight.double().t()
    fixed = FixedProduct(weight, 16)
    for made in (fixed, copy.deepcopy(fixed), pickle.loads(pickle.dumps(fixed)), FixedProduct(weight.t().contiguous().t(), 16)):
        torch.testing.assert_close(made(left).double(), expected, rtol=0, atol=TOLERANCE[dtype])
    for factor in (left, left.t().contiguous().t()):
        for made in (
            product(factor, weight.t()),
            product(left_factor(factor), weight.t()),
            product_into(factor, weight.t(), torch.empty(rows, 26, dtype=dtype)),
        ):
            assert made.dtype == dtype
            torch.testing.assert_close(made.double(), expected, rtol=0, atol=TOLERANCE[dtype])
    layer = FixedLinear(weight, torch.arange(26.0, dtype=dtype))
    torch.testing.assert_close(
        layer(left.unsqueeze(1)).double(), (expected + torch.arange(26)).unsqueeze(1), rtol=0, atol=TOLERANCE[dtype] * 2
    )


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_matrices_are_stored_by_rows(dtype):
    wide = torch.arange(300 * 70.0).view(300, 70).to(dtype)
    for values in (
        wide,
        wide.t(),
        wide[:, 3:50].t(),
        wide[5:200].t(),
        wide[::2].t(),
        wide[:, ::2],
        wide[:1].t(),
        wide[:, :1].t(),
        wide[:0].t(),
    ):
        assert products.in_rows(values).is_contiguous()
        assert torch.equal(products.in_rows(values), values)
    trained = torch.randn(70, 300, requires_grad=True)
    assert torch.equal(products.in_rows(trained.t()), trained.t())


@pytest.mark.parametrize(
    ("name", "capability", "lacking"), [("Intel Xeon", "AVX512", False), ("AMD Zen 4", "AVX512", True), ("AMD Zen 2", "AVX2", False)]
)
def test_the_library_of_large_products_in_float32(monkeypatch, name, capability, lacking):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"cpu_name": name})
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert products._mkl_lacks_avx512.__wrapped__() == lacking


@pytest.mark.parametrize(("name", "mode", "used"), [("ONEDNN", "bf16", False), ("DNNL", "ANY", False), ("ONEDNN", "STRICT", True)])
def test_kernels_that_would_round_float32_are_left_out(monkeypatch, name, mode, used):
    there = products._kernels_for(torch.float32)
    monkeypatch.setenv(f"{name}_DEFAULT_FPMATH_MODE", mode)
    products._kernels_for.cache_clear()
    try:
        assert products._kernels_for(torch.float32) == (used and there)
    finally:
        monkeypatch.undo()
        products._kernels_for.cache_clear()


def test_layers_for_decoders_stay_in_float32_under_autocast():
    layer, inputs = FixedLinear(torch.randn(9, 5), None), torch.randn(40, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(inputs.bfloat16()).dtype == torch.float32
        torch.testing.assert_close(layer(inputs)[3:5], layer(inputs[:36])[3:5])


def test_numbers_of_rows_are_rounded_up_to_few():
    sizes = [round_up_to_few(count) for count in range(5000)]
    assert all(count <= size <= max(count + 3, 1.07 * count) for count, size in enumerate(sizes))
    assert len({size for size in sizes if 512 < size <= 1024}) == 16
    assert all(round_up_to_few(size) == size for size in sizes)


@pytest.mark.parametrize("gpu", [True, False])
@pytest.mark.parametrize(
    "setting", ["high", "medium", "allow_tf32", "fp32_precision", "highest", "on the CPU", "medium, on the CPU", "of the library", "of all"]
)
def test_other_products_use_no_tf32_either_and_settings_return(monkeypatch, setting, gpu):
    """Each of torch's ways to ask for it."""
    matmul, on_cpu = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    try:
        if setting.startswith(("allow", "fp32")):
            setattr(matmul, setting, {"allow_tf32": True, "fp32_precision": "tf32"}[setting])
        elif setting == "on the CPU":
            matmul.allow_tf32, on_cpu.fp32_precision = True, "bf16"
        elif setting == "of the library":
            torch.backends.mkldnn.fp32_precision = "bf16"
        elif setting == "of all":
            torch.backends.fp32_precision = "tf32"
        else:
            torch.set_float32_matmul_precision(setting.partition(",")[0])
            if setting.endswith("CPU"):
                on_cpu.fp32_precision = "none"
        before = settings_of_tf32()
        with full_float32():
            assert on_cpu.fp32_precision not in ("bf16", "tf32")
            if gpu:
                assert not matmul.allow_tf32  # raises if its settings contradict each other
                assert matmul.fp32_precision != "tf32"
        assert settings_of_tf32() == before
    finally:
        torch.backends.fp32_precision = "none"
        torch.backends.mkldnn.fp32_precision = "none"
        torch.set_float32_matmul_precision("highest")
        on_cpu.fp32_precision = "none"


def settings_of_tf32() -> list[str]:
    """Those of products on GPUs; of one that torch does not tell, its error."""
    matmul, on_cpu, found = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul, []
    for setting in (
        lambda: matmul.fp32_precision,
        lambda: on_cpu.fp32_precision,
        torch.get_float32_matmul_precision,
        lambda: matmul.allow_tf32,
    ):
        try:
            found.append(str(setting()))
        except RuntimeError as error:
            found.append(str(error)[:40])
    return found


def test_cudnn_is_left_out_for_as_long_as_a_thread_needs_it(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "enabled", True)
    with without_cudnn():
        with without_cudnn():
            assert not torch.backends.cudnn.enabled
        assert not torch.backends.cudnn.enabled
    assert torch.backends.cudnn.enabled


@pytest.mark.parametrize("precision", ["tf32", "none"])
def test_scores_after_a_history_are_read_without_tf32(monkeypatch, tmp_path, precision):
    """cuDNN's recurrent layers, which read many positions at once, would round to TF32 by default."""
    used = []

    def read_together(lstm, embedded, before):
        used.append(torch.backends.cudnn.rnn.fp32_precision)
        return lstm(embedded, before)

    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", precision == "tf32")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(LSTM, "read_together", read_together)
    model = make_model("single", torch.float32)
    vocabulary = Vocabulary([*SPECIAL_SYMBOLS, *map(str, range(V - len(SPECIAL_SYMBOLS)))])
    trained, state = TrainedModel(model.eval(), vocabulary, tmp_path, "attentive_lstm_lm", ""), model.initial_state(1)
    DecoderLM(trained).read(state, torch.tensor([[4, 5, 6]]))
    read_sequences(Float32Model(model), [[4, 5, 6]], [state])
    read_batch(trained, [[4, 5, 6]], True)
    assert used == ["ieee"] * 3
    one, other = full_float32(), full_float32()  # of two threads
    with one:
        other.__enter__()
    assert torch.backends.cudnn.rnn.fp32_precision == "ieee"
    other.__exit__(None, None, None)
    assert torch.backends.cudnn.rnn.fp32_precision == precision
