"""Training through fairseq-train: documents with carried state, initialisation, the entropy term, adaptive softmax, two processes."""

from __future__ import annotations

import math
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary
from fairseq_programs import programs
from fairseq_runs import LOGGING, ROOT, expect_one_line, fairseq, logged, measured
from omegaconf import OmegaConf
from small_models import make_model

from attlm_fairseq import plugin
from attlm_fairseq.checkpoints.reading import load_model
from attlm_fairseq.criterions.lm_cross_entropy import attention_entropy
from attlm_fairseq.errors import InputError
from attlm_fairseq.models._decoder import MemoryDecoder
from attlm_fairseq.modules.kernels.products import has_bfloat16_instructions
from attlm_fairseq.scoring.lm_files import load_lm_files
from attlm_fairseq.scoring.perplexity import PerplexityCounter
from attlm_fairseq.tasks.document_reset_lm import DocumentResetLMConfig, DocumentResetLMTask
from attlm_fairseq.tasks.sentence_reset_lm import SentenceResetLMConfig, SentenceResetLMTask

USER_DIR = ["--user-dir", str(ROOT / "attlm_fairseq")]
SENTENCES = [*USER_DIR, "--task", "sentence_reset_lm"]
DOCUMENTS = [*USER_DIR, "--task", "document_reset_lm", "--bptt", "3"]
SMALL = [
    "--decoder-embed-dim",
    "18",
    "--decoder-hidden-size",
    "18",
    "--decoder-layers",
    "1",
    "--dropout",
    "0",
    "--init-range",
    "0.5",
    "--seed",
    "3",
    "--cpu",
]
SGD = ["--optimizer", "sgd", "--lr", "1.0", "--clip-norm", "5", "--criterion", "lm_cross_entropy", *LOGGING]
KVP = ["--arch", "kvp_lstm_lm", "--kvp-mode", "key-value-predict", "--attention-window", "5"]


def documents(text: str) -> list[str]:
    """The documents between blank lines, as tokens with a ``</s>`` after each line."""
    return [" ".join(f"{line} </s>" for line in part.split("\n")).strip() for part in re.split(r"\n{2,}", text.strip("\n"))]


@torch.no_grad()
def document_ppl(checkpoint: Path, text: str, segment: int | None = None) -> float:
    """Perplexity with documents read whole, or in segments that know nothing of each other, one at a time."""
    trained = load_model(checkpoint)
    total, events = 0.0, 0
    for document in documents(text):
        symbols = {symbol: index for index, symbol in enumerate(trained.vocabulary.symbols)}
        tokens = [symbols["</s>"], *(symbols.get(word, symbols["<unk>"]) for word in document.split())]
        step = segment or len(tokens)
        for begin in range(0, len(tokens) - 1, step):
            piece = torch.tensor(tokens[begin : begin + step + 1])
            features, read = trained.model.extract_features(piece[:-1].unsqueeze(0))
            total += trained.model.output.nll(features[0], piece[1:], read and read.map(lambda part: part[0])).item()
            events += len(piece) - 1
    return math.exp(total / events)


def ppl(result: subprocess.CompletedProcess) -> float:
    return float(logged(result, "valid")[-1]["valid_ppl"])


def saved_states(checkpoint: Path) -> list[dict]:
    """What each process carried from one batch of documents to the next."""
    return torch.load(checkpoint, weights_only=False)["extra_state"]["DocumentResetLMTask"]["ranks"]


def same_weights(one: Path, other: Path, tolerance: float = 0.0) -> None:
    expected, got = (torch.load(path, weights_only=False)["model"] for path in (one, other))
    assert expected.keys() == got.keys()
    for name, weight in expected.items():
        torch.testing.assert_close(got[name], weight, rtol=0, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}")


DOC = ["averaging_lstm_lm", "--softmaxes", "2,2", "--decoder-layers", "2"]
OTHERS = [["rnn_lm"], ["hornn_lm_gated"], ["rm_lm_rmr"], ["lstmn_lm"], ["mogrifier_lstm_lm"], ["rwa_lm"], ["pointer_lstm_lm"], DOC]


@pytest.mark.parametrize("architecture", OTHERS)
def test_documents_of_other_models(data, tmp_path, architecture):
    """Their states are carried to the end of a document, and saved, like those of an LSTM with one softmax."""
    arguments = [data / "bin", *DOCUMENTS, *SMALL, "--arch", *architecture, *SGD, "--batch-size", 2, "--save-dir", tmp_path]
    found = fairseq("train", *arguments, "--max-update", 20)
    text, checkpoint = (data / "valid.txt").read_text(), tmp_path / "checkpoint_last.pt"
    carried = document_ppl(checkpoint, text)
    assert ppl(found) == pytest.approx(carried, rel=1e-4)
    assert abs(carried / document_ppl(checkpoint, text, segment=3) - 1) > 1e-3
    assert any(saved_states(checkpoint))


def test_documents_train_validate_resume_and_score(data):
    arguments = [data / "bin", *DOCUMENTS, *KVP, *SMALL, *SGD, "--batch-size", 2]
    whole = fairseq("train", *arguments, "--max-update", 60, "--save-dir", data / "documents", "--save-interval-updates", 25)
    checkpoint = data / "documents" / "checkpoint_last.pt"
    text = (data / "valid.txt").read_text()
    carried, per_segment = document_ppl(checkpoint, text), document_ppl(checkpoint, text, segment=3)
    assert ppl(whole) == pytest.approx(carried, rel=1e-4)
    assert abs(carried / per_segment - 1) > 1e-3  # otherwise the next lines would show nothing
    for command, pattern in (("validate", r"\| ppl ([\d.]+)"), ("eval-lm", r"Perplexity: ([\d.]+)")):
        subset = ["--gen-subset", "valid"] if command == "eval-lm" else ["--log-format", "simple"]
        result = fairseq(command, data / "bin", *DOCUMENTS, "--path", checkpoint, "--batch-size", 3, "--cpu", *subset)
        assert float(re.search(pattern, result.stdout)[1]) == pytest.approx(carried, abs=0.006)
    result = fairseq(
        "validate",
        data / "bin",
        *DOCUMENTS,
        "--reset",
        "segment",
        "--path",
        checkpoint,
        "--batch-size",
        3,
        "--cpu",
        "--log-format",
        "simple",
    )
    assert float(re.search(r"\| ppl ([\d.]+)", result.stdout)[1]) == pytest.approx(per_segment, abs=0.006)

    (data / "resumed documents").mkdir()
    (data / "resumed documents" / "checkpoint_last.pt").write_bytes((data / "documents" / "checkpoint_1_25.pt").read_bytes())
    fairseq("train", *arguments, "--max-update", 60, "--save-dir", data / "resumed documents")
    same_weights(checkpoint, data / "resumed documents" / "checkpoint_last.pt")


def test_initialisation_from_a_plain_model_and_the_entropy_term(data):
    plain, amsrn = data / "plain", data / "amsrn"
    one = [data / "bin", *SENTENCES, *SMALL, *SGD, "--batch-size", 8, "--max-epoch", 1]
    fairseq("train", *one, "--arch", "plain_lstm_lm", "--output-layer", "untied", "--save-dir", plain)
    begin = ["--init-from", plain / "checkpoint_last.pt"]
    # at a rate of 0 the weights stay what they began as
    result = fairseq("train", *one, "--arch", "amsrn_lm", *begin, "--lr", 0, "--attention-entropy", 0.5, "--save-dir", amsrn)
    assert "output.weight (the first 18 of 36 columns)" in result.stdout
    taken, model = load_model(plain / "checkpoint_last.pt").model, load_model(amsrn / "checkpoint_last.pt").model
    assert torch.equal(model.embedding.weight, taken.embedding.weight)
    assert torch.equal(model.lstm.weight_hh_l0, taken.lstm.weight_hh_l0)
    assert torch.equal(model.output.weight[:, :18], taken.output.weight)
    last = logged(result, "valid")[-1]
    assert last["valid_loss"] == last["valid_nll_loss"]  # by which fairseq chooses the best checkpoint
    assert 0 < float(last["valid_attention_entropy"]) < math.log(41)
    first = logged(result, "train_inner")[0]
    entropy, nll = float(first["attention_entropy"]), float(first["nll_loss"])
    assert float(first["loss"]) == pytest.approx(nll + 0.5 * entropy / math.log(2), abs=2e-3)
    gone = ["--init-from", data / "gone.pt", "--lr", 0, "--arch", "amsrn_lm"]
    refused = fairseq("train", *one, *gone, "--save-dir", data / "no", check=False)
    expect_one_line(refused, "gone.pt")
    for resumed in (["--save-dir", amsrn], ["--save-dir", data / "more amsrn", "--restore-file", amsrn / "checkpoint_last.pt"]):
        result = fairseq("train", *one, *gone, *resumed, "--max-epoch", 2)
        assert f"not initialised from {data / 'gone.pt'}" in result.stdout
        assert f"Loaded checkpoint {amsrn / 'checkpoint_last.pt'}" in result.stdout
    refused = fairseq("train", *one, "--arch", "amsrn_lm", *begin, "--decoder-layers", 2, "--save-dir", data / "no", check=False)
    expect_one_line(refused, "lstm.weight_ih_l1 is missing", "--decoder-layers")
    refused = fairseq("train", *one, "--arch", "plain_lstm_lm", "--attention-entropy", 0.5, "--save-dir", data / "no", check=False)
    expect_one_line(refused, "--attention-entropy", "has none")


def counted(task: SentenceResetLMTask, words: str) -> list[int]:
    return [int(task.word_counts()[task.dictionary.index(word)]) for word in words.split()]


def test_what_is_never_predicted_is_not_counted(tmp_path):
    """Document separators, what --cut-sentences cuts, blank lines that are skipped."""
    (tmp_path / "train.txt").write_text("<doc>\na b c\n\n<doc>\na\n")
    fairseq("preprocess", "--only-source", "--trainpref", tmp_path / "train.txt", "--destdir", tmp_path / "bin")
    common = {"data": str(tmp_path / "bin"), "train_subset": "train", "dataset_impl": None}
    for options, counts in (({}, [2, 1, 5, 2]), ({"blank_lines": "skip", "cut_sentences": 2}, [2, 0, 3, 2])):
        config = OmegaConf.merge(SentenceResetLMConfig, common | options)
        assert counted(SentenceResetLMTask.setup_task(config), "a c </s> <doc>") == counts
    config = OmegaConf.merge(DocumentResetLMConfig, common | {"document_marker": "<doc>"})
    assert counted(DocumentResetLMTask.setup_task(config), "a c </s> <doc>") == [2, 1, 3, 0]


@pytest.mark.parametrize("implementation", ["mmap", "cached", "lazy"])
def test_data_of_any_implementation_are_read(tmp_path, implementation):
    (tmp_path / "train.txt").write_text("a b c\n\na\n")
    options = ["--trainpref", tmp_path / "train.txt", "--destdir", tmp_path / "bin", "--dataset-impl", implementation]
    fairseq("preprocess", "--only-source", *options)
    config = OmegaConf.merge(SentenceResetLMConfig, {"data": str(tmp_path / "bin"), "train_subset": "train", "dataset_impl": None})
    task = SentenceResetLMTask.setup_task(config)
    task.load_dataset("train")
    lines = [task.dictionary.string(task.dataset("train")[line]["target"]) for line in range(3)]
    assert lines == ["a b c", "", "a"]


def test_output_biases_begin_with_the_frequencies_of_the_training_text(data):
    one = [data / "bin", *SENTENCES, *SMALL, *SGD, "--batch-size", 8, "--max-update", 1, "--lr", 0]  # at a rate of 0 they stay

    def began(arch: str, *options: object) -> Path:
        fairseq("train", *one, "--arch", arch, *options, "--save-dir", data / "biases" / arch)
        return data / "biases" / arch / "checkpoint_last.pt"

    trained = load_model(began("kvp_lstm_lm"))
    words = [word for line in (data / "train.txt").read_text().splitlines() for word in (*line.split(), "</s>")]
    counts = torch.tensor([words.count(symbol) for symbol in trained.vocabulary.symbols], dtype=torch.float64).clamp(min=0.5)
    torch.testing.assert_close(trained.model.output.bias, (counts / counts.sum()).log().float())
    assert not load_model(began("plain_lstm_lm", "--output-bias", "zero")).model.output.bias.any()
    assert not load_model(began("averaging_lstm_lm_ptb")).model.output.bias.any(), "Salton et al. begin with biases of 0"
    again = fairseq("train", *one, "--arch", "kvp_lstm_lm", "--init-from", began("kvp_lstm_lm"), "--save-dir", data / "biases" / "again")
    assert "output.bias" in again.stdout


def test_adaptive_softmax_validates_as_it_scores(data):
    """With both criterions: the pieces of ours and the whole distributions of fairseq's own. (fairseq's adaptive_loss is not exact.)"""
    arguments = [data / "bin", *SENTENCES, "--arch", "averaging_lstm_lm", *SMALL, *SGD, "--batch-size", 8, "--max-epoch", 1]
    arguments += ["--output-layer", "adaptive", "--adaptive-cutoffs", "5,9"]
    for criterion in ("lm_cross_entropy", "cross_entropy"):
        result = fairseq("train", *arguments, "--criterion", criterion, "--save-dir", data / criterion)
        assert ppl(result) == pytest.approx(measured(data, data / criterion / "checkpoint_last.pt").ppl, rel=1e-4)
    same_weights(data / "lm_cross_entropy" / "checkpoint_last.pt", data / "cross_entropy" / "checkpoint_last.pt", 1e-5)


def test_a_transformer_of_fairseqs_validates_as_it_scores(data):
    sizes = ["--decoder-embed-dim", 16, "--decoder-ffn-embed-dim", 16, "--decoder-layers", 1, "--decoder-attention-heads", 2]
    arguments = [data / "bin", *SENTENCES, "--arch", "transformer_lm", *sizes, "--cpu", *SGD, "--criterion", "cross_entropy"]
    result = fairseq("train", *arguments, "--lr", 0.1, "--batch-size", 8, "--max-epoch", 1, "--save-dir", data / "transformer", check=False)
    assert result.returncode == 0, result.stdout[-2000:]  # not checked for warnings: torch has one on fairseq's masks
    lm = load_lm_files([data / "transformer" / "checkpoint_last.pt"], "lm", dictionary=data / "bin" / "dict.txt")
    counter = PerplexityCounter()
    for score in lm.score([line.split() for line in (data / "valid.txt").read_text().split("\n")[:-1]]):
        counter.add(score)
    assert ppl(result) == pytest.approx(counter.ppl, rel=1e-4)


def test_bfloat16_trains_like_float32(data):
    arguments = [data / "bin", *SENTENCES, "--arch", "attentive_lstm_lm", *SMALL, *SGD, "--batch-size", 8, "--max-epoch", 2]
    exact = fairseq("train", *arguments, "--save-dir", data / "float32")
    near = fairseq("train", *arguments, "--compute-dtype", "bf16", "--save-dir", data / "bf16")
    assert ppl(near) == pytest.approx(ppl(exact), rel=0.05)
    saved = torch.load(data / "bf16" / "checkpoint_last.pt", weights_only=False)
    assert {weight.dtype for weight in saved["model"].values() if weight.is_floating_point()} == {torch.float32}
    measured = fairseq(
        "eval-lm", data / "bin", *SENTENCES, "--path", data / "bf16" / "checkpoint_last.pt", "--gen-subset", "valid", "--cpu"
    )
    assert float(re.search(r"Perplexity: ([\d.]+)", measured.stdout)[1]) == pytest.approx(ppl(near), rel=0.01)
    assert (ppl(near) != ppl(exact)) == has_bfloat16_instructions()  # without them it is computed in float32


@pytest.mark.parametrize("variant", ["single", "combined", "selection tied", "key-value-predict", "plain"])
def test_logits_that_are_evaluated_have_more_digits_than_bfloat16(monkeypatch, variant):
    monkeypatch.setattr("attlm_fairseq.models._decoder.has_bfloat16_instructions", lambda: True)
    decoder = MemoryDecoder(Dictionary(), make_model(variant, torch.float32), "bf16")
    tokens = torch.randint(0, 9, (3, 7), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for training, digits in ((False, True), (True, False)):
            logits = decoder.train(training)(tokens)[0]
            assert (not torch.equal(logits, logits.bfloat16().to(logits.dtype))) == digits
        step = decoder.eval()(tokens, incremental_state={})[0]
    assert step.dtype == torch.float32


def test_mixed_precision_of_fairseqs_own_is_refused(data):
    result = fairseq("train", data / "bin", *DOCUMENTS, *KVP, *SMALL, *SGD, "--batch-size", 2, "--amp", check=False)
    expect_one_line(result, "--amp", "--compute-dtype bf16")


def end_with_bad_input(rank: int) -> None:
    raise InputError("there is no dict.txt", path="bin")


def test_bad_input_of_several_processes_is_one_line(capsys, monkeypatch):
    """fairseq starts one for each GPU; of the first that fails, its parent gets the traceback as text."""
    with pytest.raises(torch.multiprocessing.ProcessRaisedException) as raised:
        torch.multiprocessing.start_processes(end_with_bad_input, nprocs=1, start_method="fork")
    monkeypatch.setattr(plugin.os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as ended:
        plugin.one_line_input_errors(type(raised.value), raised.value, None)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "attlm: error: bin: there is no dict.txt\n"


def test_entropy_of_the_attention():
    weights = torch.tensor([[[1.0, 0.0], [0.5, 0.5]], [[0.2, 0.8], [0.25, 0.75]]], requires_grad=True)
    counted = torch.tensor([[True, True], [True, False]])
    entropy = attention_entropy(weights, counted)
    assert entropy.item() == pytest.approx(math.log(2) - 0.2 * math.log(0.2) - 0.8 * math.log(0.8), rel=1e-6)
    entropy.backward()
    assert weights.grad.isfinite().all()
    assert not weights.grad[1, 1].any()


def two_processes(*arguments: object, code: int = 0) -> subprocess.CompletedProcess:
    """fairseq-train --cpu in two processes that know each other; what the first prints, then what the other does.

    legacy_ddp: fairseq's default backend names a device to torch's DDP, which refuses that here.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    among = ["--distributed-world-size", 2, "--distributed-no-spawn", "--distributed-init-method", f"tcp://127.0.0.1:{port}"]
    command = [programs() / "fairseq-train", *arguments, *among, "--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]
    processes = [
        subprocess.Popen([*map(str, command), "--distributed-rank", str(rank)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in (0, 1)
    ]
    printed = [process.communicate(timeout=500)[0] for process in processes]
    assert [process.returncode for process in processes] == [code, code], [text[-3000:] for text in printed]
    return subprocess.CompletedProcess(processes[0].args, code, printed[0] + printed[1])


def test_bad_input_of_two_processes_is_one_line_of_each(data):
    """torch.distributed replaces Python's hook for errors by its own, which keeps what the plugin's prints until that returns."""
    refused = two_processes(
        data / "bin", *SENTENCES, "--arch", "attentive_lstm_lm", *SMALL, *SGD, "--batch-size", 5, "--decoder-embed-dim", 6, code=2
    )
    assert refused.stdout.count("attlm: error: --arch attentive_lstm_lm: the output layer can only be tied") == 2
    assert "Traceback" not in refused.stdout


def test_two_processes_are_one_with_twice_the_sentences(data):
    """61 sentences: the last batches of the processes are unlike, and one has a batch more."""
    common = [data / "bin", *SENTENCES, "--arch", "attentive_lstm_lm", *SMALL, *SGD, "--batch-size", 5, "--max-epoch", 2]
    one = fairseq("train", *common, "--update-freq", 2, "--save-dir", data / "one process")
    two = two_processes(*common, "--save-dir", data / "two processes")
    same_weights(data / "one process" / "checkpoint_last.pt", data / "two processes" / "checkpoint_last.pt", 1e-5)
    for name in ("valid_ppl", "valid_ppl_salton2017"):
        assert float(logged(two, "valid")[-1][name]) == pytest.approx(float(logged(one, "valid")[-1][name]), rel=1e-4)


def test_several_batches_of_an_update_and_a_process_that_runs_out_within_it(data, tmp_path):
    """61 sentences in batches of 24, three for an update: one process has two, the other one and then none."""
    common = [data / "bin", *SENTENCES, "--arch", "plain_lstm_lm", *SMALL, *SGD, "--batch-size", 24, "--max-epoch", 1]
    one = fairseq("train", *common, "--update-freq", 3, "--save-dir", tmp_path / "one")
    two = two_processes(*common, "--update-freq", 2, "--save-dir", tmp_path / "two")
    same_weights(tmp_path / "one" / "checkpoint_last.pt", tmp_path / "two" / "checkpoint_last.pt", 1e-5)
    logs = [logged(result, "train")[-1] for result in (one, two)]
    for name in ("train_wpb", "train_bsz", "train_gnorm"):
        assert float(logs[1][name]) == pytest.approx(float(logs[0][name]), abs=2e-3), name


def test_another_metric_than_that_of_the_checkpoint(data, tmp_path):
    """Its numbers are not compared with those of before, by none of what counts validations."""
    common = [data / "bin", *SENTENCES, "--arch", "plain_lstm_lm", *SMALL, *SGD, "--batch-size", 8, "--save-dir", tmp_path]
    common += ["--lr-scheduler", "reduce_lr_on_plateau", "--patience", 1]
    fairseq("train", *common, "--max-epoch", 1)
    changed = fairseq("train", *common, "--max-epoch", 4, "--best-checkpoint-metric", "ppl")
    assert (
        "with --best-checkpoint-metric 'loss', and this run has --best-checkpoint-metric 'ppl': the next validation counts"
        in changed.stdout
    )
    found = logged(changed, "valid")
    assert len(found) == 3
    assert "valid_best_ppl" not in found[0]
    best = torch.load(tmp_path / "checkpoint_best.pt", weights_only=False)["extra_state"]
    assert best["best"] == min(float(log["valid_ppl"]) for log in found) == best["SentenceResetLMTask"]["validation"]["ppl"]
    of_more = fairseq("train", *common, "--max-epoch", 4, "--best-checkpoint-metric", "ppl", "--valid-subset", "valid,train")
    assert "counts as the best so far" not in of_more.stdout, "the first subset decides"
    again = fairseq("train", *common, "--max-epoch", 5, "--best-checkpoint-metric", "ppl", "--reset-meters")
    assert len(logged(again, "valid")) == 1


def test_the_validation_of_a_checkpoint_is_that_of_its_weights(data, tmp_path):
    """fairseq's meters have the mean of all validations."""
    common = [data / "bin", *SENTENCES, "--arch", "plain_lstm_lm", *SMALL, *SGD, "--batch-size", 8, "--max-epoch", 3]
    found = logged(fairseq("train", *common, "--save-dir", tmp_path), "valid")
    saved = torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)["extra_state"]["SentenceResetLMTask"]["validation"]
    assert saved == {name: float(found[-1][f"valid_{name}"]) for name in ("ppl", "ppl_salton2017")}
    assert len({log["valid_ppl"] for log in found}) == 3
    fairseq("train", *common, "--save-dir", tmp_path / "unjudged", "--validate-interval", 2)
    saved = torch.load(tmp_path / "unjudged" / "checkpoint_last.pt", weights_only=False)["extra_state"]["SentenceResetLMTask"]["validation"]
    assert saved == {}, "its weights were not validated"


def test_two_processes_carry_documents_like_one_with_their_rows(data):
    common = [data / "bin", *DOCUMENTS, *KVP, *SMALL, *SGD, "--max-update", 40]
    one = fairseq("train", *common, "--batch-size", 4, "--save-dir", data / "four rows")
    two = two_processes(*common, "--batch-size", 2, "--save-dir", data / "two rows", "--save-interval-updates", 25)
    same_weights(data / "four rows" / "checkpoint_last.pt", data / "two rows" / "checkpoint_last.pt", 1e-5)
    assert ppl(two) == pytest.approx(ppl(one), rel=1e-4)
    (data / "two resumed").mkdir()
    (data / "two resumed" / "checkpoint_last.pt").write_bytes((data / "two rows" / "checkpoint_1_25.pt").read_bytes())
    two_processes(*common, "--batch-size", 2, "--save-dir", data / "two resumed")
    same_weights(data / "two rows" / "checkpoint_last.pt", data / "two resumed" / "checkpoint_last.pt")

    unseen = [*common, "--batch-size", 2, "--max-update", 25, "--disable-validation", "--save-dir", data / "two unseen"]
    two_processes(*unseen)
    with_validation, without = (saved_states(data / name) for name in ("two rows/checkpoint_1_25.pt", "two unseen/checkpoint_last.pt"))
    assert len(without) == 2
    assert all(without)
    torch.testing.assert_close(without, with_validation, rtol=0, atol=0)

    for folder, checkpoint in (("one refused", "checkpoint_1_25.pt"), ("one resumed", "checkpoint1.pt")):
        (data / folder).mkdir()
        (data / folder / "checkpoint_last.pt").write_bytes((data / "two rows" / checkpoint).read_bytes())
    refused = fairseq("train", *common, "--batch-size", 4, "--save-dir", data / "one refused", check=False)
    expect_one_line(refused, "--distributed-world-size 2, --batch-size 2", "--distributed-world-size 1, --batch-size 4")
    assert saved_states(data / "two rows" / "checkpoint1.pt") == [{}, {}]
    fairseq("train", *common, "--batch-size", 4, "--save-dir", data / "one resumed")
    same_weights(data / "four rows" / "checkpoint_last.pt", data / "one resumed" / "checkpoint_last.pt", 1e-5)


def test_each_process_draws_its_own_dropout(monkeypatch):
    """And other numbers for each batch of an update: fairseq sets the seed once for all of them."""
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    drawn = []
    for rank in (0, 1, 2):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        task = SimpleNamespace(_own_seed=-1)
        for seed in (1, 2, 1):  # the last one is a repeated update, after an overflow
            torch.manual_seed(seed)
            for _ in range(2):
                SentenceResetLMTask.draw_by_rank(task)
                drawn.append(tuple(torch.rand(3).tolist()))
    torch.manual_seed(1)
    assert [drawn[0], drawn[1]] == [tuple(torch.rand(3).tolist()) for _ in range(2)], "the first process draws as one alone"
    assert len(set(drawn)) == 12
    assert all(drawn[place : place + 2] == drawn[place + 4 : place + 6] for place in (0, 6, 12))
