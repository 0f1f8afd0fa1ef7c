"""Knowledge distillation: the loss of a student, what its teachers carry, and training by fairseq's command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import reference
import torch
from fairseq_runs import LOGGING, ROOT, expect_one_line, fairseq, logged
from lm_files import write_checkpoint
from small_models import PAD, V, make_model, reference_log_probs, sentences

from attlm_fairseq.checkpoints.reading import FINGERPRINT, TrainedModel, load_model
from attlm_fairseq.checkpoints.vocabulary import Vocabulary
from attlm_fairseq.criterions.teacher import Teachers, load_teachers
from attlm_fairseq.errors import InputError
from attlm_fairseq.models._decoder import MemoryDecoder, Taught
from attlm_fairseq.modules.kernels.linear_nll import LossTerms
from attlm_fairseq.modules.state import EVERYTHING, Carried
from attlm_fairseq.plugin import register
from attlm_fairseq.tasks._carried_state import CarriedState

register()
WORDS = [f"w{number}" for number in range(V - 4)]
USER_DIR = ["--user-dir", ROOT / "attlm_fairseq"]
SMALL = [*USER_DIR, "--decoder-embed-dim", 8, "--decoder-hidden-size", 8, "--criterion", "lm_cross_entropy", "--optimizer", "sgd"]
SMALL += ["--lr", 0.5, "--batch-size", 4, "--cpu", *LOGGING]
STUDENT = [*SMALL, "--arch", "attentive_lstm_lm", "--attention-score", "combined"]


class Words:
    """As much of fairseq's dictionary as a decoder asks for."""

    symbols = ("<s>", "<pad>", "</s>", "<unk>", *WORDS)

    def pad(self) -> int:
        return PAD


def teachers_of(*models: torch.nn.Module) -> Teachers:
    return Teachers([trained_model(model) for model in models])


def trained_model(model: torch.nn.Module, carried: Carried = EVERYTHING) -> TrainedModel:
    return TrainedModel(model, Vocabulary(Words.symbols), Path("lm.pt"), "plain_lstm_lm", "", carried)


def decoder_of(variant: str, **options: object) -> MemoryDecoder:
    return MemoryDecoder(Words(), make_model(variant, **options)).eval()


def trained(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def batch(rows: int = 3, length: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and targets (B, T); the second row is shorter."""
    tokens = sentences(rows, length + 1)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].clone()
    inputs[1, 5:], targets[1, 5:] = PAD, PAD
    return inputs, targets


@pytest.mark.parametrize(
    ("variant", "options"),
    [
        ("plain", {}),
        ("combined", {"output_layer": "untied"}),
        ("plain", {"softmaxes": "3", "output_layer": "tied"}),
        ("pointer", {"output_layer": "untied"}),
    ],
)
@pytest.mark.parametrize("weight", [0.3, 1.0])
def test_the_loss_and_its_gradients(variant, options, weight):
    student, others = decoder_of(variant, **options), [make_model("averaging"), make_model("RM gated")]
    inputs, targets = batch()
    q = teachers_of(*others).probabilities(inputs)
    total, extra = student(inputs, target=targets, taught=Taught(q, weight))
    found = torch.autograd.grad(total, trained(student.model), allow_unused=True)
    expected, plain = 0, 0
    for row, target in zip(inputs.tolist(), targets.tolist(), strict=True):
        words = [token for token in row if token != PAD]
        log_probs, _ = reference_log_probs(student.model, words, variant)
        of_others = [
            reference_log_probs(other, words, name)[0].exp() for other, name in zip(others, ("averaging", "RM gated"), strict=True)
        ]
        for t in range(len(words)):
            expected = expected + reference.taught_nll(log_probs[t], target[t], [each[t] for each in of_others], weight)
            plain = plain - log_probs[t, target[t]]
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(extra["loss"].nll, plain)
    by_loop = torch.autograd.grad(expected, trained(student.model), allow_unused=True)
    for one, other in zip(found, by_loop, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(one, other)


def test_the_adaptive_softmax_learns_too():
    student = decoder_of("plain", output_layer="adaptive", adaptive_cutoffs="9")
    inputs, targets = batch()
    q = teachers_of(make_model("averaging")).probabilities(inputs)
    total, extra = student(inputs, target=targets, taught=Taught(q, 0.4))
    counted = targets != PAD
    log_probs = student(inputs)[0].log_softmax(-1)
    soft = -(q * log_probs)[counted].sum()
    torch.testing.assert_close(total, 0.6 * extra["loss"].nll + 0.4 * soft)


def test_nothing_is_left_to_learn_from_itself():
    """With weight 1, the gradients of a student that is its own teacher are 0."""
    student = decoder_of("Mogrifier")
    inputs, targets = batch()
    q = teachers_of(student.model).probabilities(inputs)
    assert not q.requires_grad
    torch.testing.assert_close(q.sum(2), torch.ones_like(q[..., 0]))
    total, _ = student(inputs, target=targets, taught=Taught(q, 1.0))
    gradients = torch.autograd.grad(total, trained(student.model), allow_unused=True)
    assert max(float(gradient.abs().max()) for gradient in gradients if gradient is not None) < 1e-12


def test_terms_of_the_output_layer_have_the_weight_of_the_text():
    student = decoder_of("plain")
    inputs, targets = batch()
    terms = LossTerms(self_normalisation=0.1)
    q = teachers_of(make_model("averaging")).probabilities(inputs)
    alone, _ = student(inputs, target=targets, terms=terms)
    soft, _ = student(inputs, target=targets, taught=Taught(q, 1.0))
    both, _ = student(inputs, target=targets, terms=terms, taught=Taught(q, 0.25))
    torch.testing.assert_close(both, 0.75 * alone + 0.25 * soft)


def test_the_loss_of_a_pointer_has_the_weight_of_the_text():
    """It has its auxiliary loss in training alone."""
    student = decoder_of("pointer").train()
    inputs, targets = batch()
    q = teachers_of(make_model("averaging")).probabilities(inputs)
    alone, extra = student(inputs, target=targets)
    assert alone > extra["loss"].nll
    soft, _ = student(inputs, target=targets, taught=Taught(q, 1.0))
    both, _ = student(inputs, target=targets, taught=Taught(q, 0.25))
    torch.testing.assert_close(both, 0.75 * alone + 0.25 * soft)


def test_a_layer_may_exclude_words(monkeypatch):
    """Words without probability that the teacher excludes, too, add nothing to the loss or its gradients."""
    student = decoder_of("plain")
    inputs, targets = batch()
    q = teachers_of(make_model("averaging")).probabilities(inputs)
    q[..., 9] = 0
    log_probs = student.model.output.log_probs
    expected = (log_probs(student.model.extract_features(inputs)[0]) * q * (targets != PAD).unsqueeze(2)).sum().neg()
    excluded = torch.arange(V) == 9
    monkeypatch.setattr(student.model.output, "log_probs", lambda *given: log_probs(*given).masked_fill(excluded, -torch.inf))
    total, _ = student(inputs, target=targets, taught=Taught(q, 1.0))
    torch.testing.assert_close(total, expected)
    assert all(bool(gradient.isfinite().all()) for gradient in torch.autograd.grad(total, trained(student.model)))


def test_locked_dropout_of_a_mixture_has_one_mask_for_a_row(monkeypatch):
    shapes = []
    student = decoder_of("plain", softmaxes="2", dropout_latent=0.5, locked_dropout=True).train()
    dropped = type(student.model.output)._dropped
    monkeypatch.setattr(
        type(student.model.output),
        "_dropped",
        lambda self, latents, counted=None: shapes.append(latents.shape) or dropped(self, latents, counted),
    )
    inputs, targets = batch()
    student(inputs, target=targets, taught=Taught(teachers_of(make_model("averaging")).probabilities(inputs), 0.5))
    assert [len(shape) for shape in shapes] == [3, 4], "the predictions of the text; rows and positions of the teacher's"


@pytest.mark.parametrize("variant", ["combined", "plain", "RM gated", "key-value-predict"])
@pytest.mark.parametrize("rule", [EVERYTHING, Carried(2), Carried(memory=False)])
def test_teachers_carry_what_they_carried_in_their_training(variant, rule):
    """Segments of a document: the probabilities that the model gives with this state, whatever the student carries."""
    model, tokens = make_model(variant), sentences(3, 12)
    carried, teachers = CarriedState(Carried(1)), Teachers([trained_model(model, rule)])
    rows, state = torch.tensor([4, 5, 7]), model.initial_state(3)
    for number, segment in enumerate(tokens.split(4, dim=1)):
        place = {"rows": rows, "starts": torch.full((3,), number == 0), "ends": torch.full((3,), number == 2)}
        found = teachers.probabilities(segment, carried=carried, src_lengths=torch.tensor([4, 4, 4]), **place)
        features, read, after = model.read(segment, state)
        torch.testing.assert_close(found, model.output.log_probs(features, read).exp())
        state = rule.of(after, model)
    assert not carried.state_dict(), "the student's states are its own"


def test_a_row_that_a_teacher_does_not_know_begins_anew():
    """As in a training that goes on within an epoch."""
    model, tokens = make_model("combined"), sentences(2, 8)
    going_on = {"starts": torch.tensor([False, False]), "ends": torch.tensor([False, False])}
    teachers, carried = teachers_of(model), CarriedState()
    teachers.probabilities(tokens[:1, :4], carried=carried, rows=torch.tensor([1]), starts=torch.tensor([True]), ends=torch.tensor([False]))
    found = teachers.probabilities(tokens[:, 4:], carried=carried, rows=torch.tensor([1, 2]), **going_on)
    whole = teachers_of(model).probabilities(tokens[:1])[:, 4:]
    torch.testing.assert_close(found, torch.cat((whole, teachers_of(model).probabilities(tokens[1:, 4:]))))


def test_what_is_no_teacher_is_refused(tmp_path):
    good = write_checkpoint(tmp_path / "good" / "lm.pt", WORDS)
    other = write_checkpoint(tmp_path / "other" / "lm.pt", WORDS[::-1])
    assert len(load_teachers(f"{good}:{good}", Words.symbols).models) == 2
    colon = write_checkpoint(tmp_path / "a:b" / "lm.pt", WORDS)
    assert len(load_teachers(str(colon), Words.symbols).models) == 1
    with pytest.raises(InputError, match=r"--teacher: its dictionary is not the one of the data folder") as caught:
        load_teachers(f"{good}:{other}", Words.symbols)
    assert str(other) in str(caught.value)
    for names in ("", f"{good}:", f":{good}"):
        with pytest.raises(InputError, match="expected a checkpoint or folder, or several joined by ':'"):
            load_teachers(names, Words.symbols)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> Path:
    """A folder with a preprocessed text, ``bin``, and a trained LM, ``lm/checkpoint_best.pt``."""
    folder = tmp_path_factory.mktemp("taught")
    generator = torch.Generator().manual_seed(0)
    for split, lines in (("train", 40), ("valid", 10)):
        starts = torch.randint(len(WORDS), (lines,), generator=generator).tolist()
        (folder / split).write_text("".join(" ".join((WORDS * 2)[start : start + 3 + start % 5]) + "\n" for start in starts))
    texts = ["--trainpref", folder / "train", "--validpref", folder / "valid"]
    fairseq("preprocess", "--only-source", *texts, "--destdir", folder / "bin")
    fairseq(
        "train",
        folder / "bin",
        *SMALL,
        "--arch",
        "plain_lstm_lm",
        "--task",
        "document_reset_lm",
        "--max-epoch",
        2,
        "--save-dir",
        folder / "lm",
    )
    return folder


def test_a_training_with_a_teacher(teacher, tmp_path):
    """It learns, goes on within an epoch, and what it writes is complete without the teacher."""
    data, lm = teacher / "bin", tmp_path / "lm (old).pt"  # a name that looks like a call
    lm.write_bytes((teacher / "lm" / "checkpoint_best.pt").read_bytes())
    (tmp_path / "dict.txt").write_bytes((data / "dict.txt").read_bytes())
    given = [*STUDENT, "--task", "document_reset_lm", "--bptt", 5, "--save-dir", tmp_path / "student"]
    taught = ["--teacher", f"{lm}:{lm}", "--teacher-weight", 0.7]
    alone = fairseq("train", data, *given, "--save-dir", tmp_path / "alone", "--max-epoch", 1)
    result = fairseq("train", data, *given, *taught, "--max-update", 3, "--save-interval-updates", 3)
    assert logged(result, "train_inner")[0]["nll_loss"] == logged(alone, "train_inner")[0]["nll_loss"], "of the words of the text"
    assert logged(result, "train_inner")[0]["loss"] != logged(alone, "train_inner")[0]["loss"]
    result = fairseq("train", data, *given, *taught, "--max-epoch", 6)
    perplexities = [float(each["valid_ppl"]) for each in logged(result, "valid")]
    assert perplexities[-1] < perplexities[0]
    weights = torch.load(tmp_path / "student" / "checkpoint_last.pt", weights_only=False)["model"]
    alone_weights = torch.load(tmp_path / "alone" / "checkpoint_last.pt", weights_only=False)["model"]
    assert weights.keys() == alone_weights.keys()
    assert FINGERPRINT in weights
    lm.unlink()
    path = ["--path", tmp_path / "student" / "checkpoint_best.pt"]
    fairseq("validate", data, *USER_DIR, "--task", "document_reset_lm", "--bptt", 5, "--batch-size", 4, "--cpu", *path)


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        (["--teacher-weight", 0.3], ["--teacher-weight 0.3 has no effect without --teacher"]),
        (["--teacher", "lm.pt", "--teacher-weight", 1.5], ["--teacher-weight 1.5: expected a number above 0, at most 1"]),
        (["--teacher", "lm.pt", "--teacher-weight", 0], ["--teacher-weight 0.0: expected a number above 0, at most 1"]),
        (["--teacher", "nowhere.pt"], ["nowhere.pt", "no such file"]),
        (["--teacher", "lm.pt", "--teacher-weight", 1, "--self-normalisation", 0.1], ["--teacher-weight 1 leaves nothing of the loss"]),
    ],
)
def test_options_of_a_teacher_that_cannot_be(teacher, tmp_path, given, parts):
    result = fairseq(
        "train",
        teacher / "bin",
        *STUDENT,
        "--task",
        "sentence_reset_lm",
        *given,
        "--save-dir",
        tmp_path / "new",
        "--max-update",
        1,
        check=False,
    )
    expect_one_line(result, *parts)
    assert not list(tmp_path.glob("new/*.pt"))


def test_a_teacher_with_other_resets_is_refused(tmp_path):
    """If the student reads documents. A teacher of documents can teach sentences; one of segments reads each from the initial state."""
    documents = {"_name": "document_reset_lm", "reset": "document", "reset_every": 0}
    checkpoint = write_checkpoint(tmp_path / "lm.pt", list(WORDS))
    symbols = load_model(checkpoint).vocabulary.symbols
    content = torch.load(checkpoint)
    for task, student, message in (
        ({"_name": "sentence_reset_lm"}, documents, "which resets the state at each sentence"),
        ({"_name": "sentence_reset_lm"}, documents | {"reset": "segment"}, None),
        ({"_name": "sentence_reset_lm"}, {"_name": "sentence_reset_lm"}, None),
        (documents, {"_name": "sentence_reset_lm"}, None),
        (documents | {"reset_every": 5}, documents, "was trained with --reset-every 5, this training has 0"),
        (documents | {"reset": "segment"}, documents, None),
        ({}, documents, None),  # of an earlier version
    ):
        content["cfg"]["task"] = {**(content["cfg"].get("task") or {}), "_name": None, "reset": None, "reset_every": 0, **task}
        torch.save(content, checkpoint)
        if message is None:
            load_teachers(str(checkpoint), symbols, student)
            continue
        with pytest.raises(InputError, match=message):
            load_teachers(str(checkpoint), symbols, student)


def test_a_teacher_of_segments_carries_nothing():
    model, tokens = make_model("single").eval(), batch()[0]
    [one] = Teachers([replace(trained_model(model), task={"reset": "segment"})]).models
    place = {"rows": torch.arange(len(tokens)), "starts": torch.zeros(len(tokens), dtype=torch.bool)}
    place["ends"] = place["starts"]
    teachers, state = Teachers([one]), CarriedState(EVERYTHING)
    for _ in range(2):
        torch.testing.assert_close(teachers.probabilities(tokens, state, **place), teachers.probabilities(tokens))
