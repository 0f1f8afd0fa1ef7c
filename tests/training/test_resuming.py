"""A run that goes on within an epoch with other options is warned of: the batches of that epoch are others then."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import fairseq.checkpoint_utils
import pytest
import torch
from fairseq.data import Dictionary

from attlm_fairseq.checkpoints import resuming
from attlm_fairseq.errors import InputError
from attlm_fairseq.tasks._absent import absent_batch
from attlm_fairseq.tasks._beginning import require_files
from attlm_fairseq.tasks._document_dataset import DocumentDataset
from attlm_fairseq.tasks.document_reset_lm import DocumentResetLMConfig, DocumentResetLMTask
from attlm_fairseq.tasks.sentence_reset_lm import SentenceResetLMConfig, SentenceResetLMTask

GIVEN = {"batch_size": 2, "max_tokens": None, "seed": 1, "train_subset": "train"}
FIRST_START = {"restore_file": "checkpoint_last.pt", "checkpoint_suffix": "", "continue_once": None, "finetune_from_model": None}


def make_task(kind: str = "sentences", lines: int = 9, **options: object) -> SentenceResetLMTask:
    if kind == "sentences":
        task = SentenceResetLMTask(SentenceResetLMConfig(**{**GIVEN, **options}), Dictionary())
        task.datasets["train"] = range(lines)
        return task
    dictionary = Dictionary()
    task = DocumentResetLMTask(DocumentResetLMConfig(**{**GIVEN, "bptt": 2, "reset": "segment", **options}), dictionary)
    text = [torch.tensor([dictionary.unk(), dictionary.eos()])] * lines
    task.datasets["train"] = DocumentDataset(text, [2] * lines, dictionary, "text", segment=2, training=True)
    return task


def warning(saving: SentenceResetLMTask, resumed: SentenceResetLMTask, caplog, inside: int = 3, reset: bool = False) -> str:
    """What is said when a checkpoint of one task is resumed by another."""
    extra_state = {"train_iterator": {}, **saving.get_checkpoint_dict()}
    load = resuming._loading(lambda cfg, trainer: (extra_state, SimpleNamespace(iterations_in_epoch=inside)))
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        load(SimpleNamespace(reset_dataloader=reset, reset_optimizer=False), SimpleNamespace(task=resumed, lr_scheduler=None))
    return caplog.text


@pytest.mark.parametrize("kind", ["sentences", "documents"])
def test_other_batches_within_an_epoch_are_warned_of(kind, caplog):
    assert warning(make_task(kind), make_task(kind), caplog) == ""
    for name, value in {"batch_size": 3, "seed": 4}.items():
        option = f"--{name.replace('_', '-')}"
        said = warning(make_task(kind), make_task(kind, **{name: value}), caplog)
        assert f"in the midst of an epoch with {option} {GIVEN[name]}, and this run has {option} {value}:" in said
        assert "--reset-dataloader" in said
        assert warning(make_task(kind), make_task(kind, **{name: value}), caplog, inside=0) == "", "between epochs"
        assert warning(make_task(kind), make_task(kind, **{name: value}), caplog, inside=0, reset=True) == ""
    assert "a training text of so many" in warning(make_task(kind), make_task(kind, lines=10), caplog)


def test_options_of_either_task(caplog, monkeypatch):
    assert "--batch-order" in warning(make_task(), make_task(batch_order="corpus"), caplog)
    assert "--cut-sentences" in warning(make_task(), make_task(cut_sentences=35), caplog)
    assert "--bptt" in warning(make_task("documents"), make_task("documents", bptt=3), caplog)
    one = make_task()
    saved = one.get_checkpoint_dict()
    monkeypatch.setattr("attlm_fairseq.tasks.sentence_reset_lm.world_size", lambda: 2)
    one.get_checkpoint_dict = lambda: saved
    assert "--distributed-world-size 1, and this run has --distributed-world-size 2" in warning(one, make_task(), caplog)


def test_a_checkpoint_of_before_says_nothing(caplog):
    older = make_task()
    older.get_checkpoint_dict = dict
    assert warning(older, make_task(seed=3), caplog) == ""


def test_an_empty_batch_of_fairseq_validate_is_one_line():
    with pytest.raises(InputError, match="fairseq-validate runs as one process: give --distributed-world-size 1"):
        make_task().valid_step(absent_batch(), None, None)


def test_a_share_of_fairseq_eval_lm_is_one_line(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    with pytest.raises(InputError, match="fairseq-eval-lm runs as one process: give --distributed-world-size 1"):
        make_task().eval_lm_dataloader(None)


def test_the_first_validation_set_judges_alone():
    task = make_task(average="nt-asgd", average_window=1)
    for perplexities in ((3.0, 9.0), (2.0, 1.0)):
        task.begin_valid_epoch(1, None)
        for ppl in perplexities:
            task.post_validate(None, {"ppl": ppl}, None)
        assert task.get_checkpoint_dict()["SentenceResetLMTask"]["validation"] == {"ppl": perplexities[0]}
    assert task.average.perplexities == [3.0, 2.0]


def test_what_is_saved_without_a_validation_is_the_average_too():
    """As with ``--disable-validation``."""
    task, model = make_task(average="asgd"), torch.nn.Linear(2, 1, bias=False)
    for value in (1.0, 2.0):
        torch.nn.init.constant_(model.weight, value)
        task.optimizer_step(SimpleNamespace(step=lambda: None), model, 1)
    saved = task.get_checkpoint_dict()["SentenceResetLMTask"]["average"]
    assert [weights.unique().tolist() for weights in (model.weight, *saved["average"], *saved["own"])] == [[1.5], [1.5], [2.0]]


def test_the_seed_does_not_change_the_order_of_the_corpus(caplog):
    assert warning(make_task(batch_order="corpus"), make_task(batch_order="corpus", seed=3), caplog) == ""


@pytest.mark.parametrize("option", ["continue_once", "finetune_from_model"])
def test_the_checkpoint_that_a_run_began_with_may_be_gone_when_it_is_resumed(tmp_path, option):
    task = make_task(**{**FIRST_START, "save_dir": str(tmp_path), option: "gone.pt"})
    with pytest.raises(InputError, match=f"gone.pt: there is no such file; correct --{option.replace('_', '-')}"):
        require_files(task.cfg)
    (tmp_path / "checkpoint_last.pt").touch()
    require_files(task.cfg)


@pytest.mark.parametrize("option", ["continue_once", "finetune_from_model"])
def test_a_checkpoint_to_begin_with_has_the_same_dictionary(tmp_path, option):
    other = Dictionary()
    other.add_symbol("another")
    torch.save({"task_state": SentenceResetLMTask(SentenceResetLMConfig(), other).state_dict()}, tmp_path / "other.pt")
    task = make_task(**{**FIRST_START, "data": "bin", "save_dir": str(tmp_path), option: str(tmp_path / "other.pt")})
    with pytest.raises(InputError, match=r"trained with a dict\.txt of other words"):
        task.compare_dictionaries()


def test_a_blank_line_cannot_be_continued_from_a_prefix():
    task = make_task()
    prefix = torch.tensor([[task.dictionary.unk()], [task.dictionary.eos()]])
    with pytest.raises(InputError, match="--prefix-size: a blank line has no words to begin with: give --blank-lines skip"):
        task.inference_step(None, [], {}, prefix)


def test_the_loss_of_an_epoch_waits_for_the_schedule_and_no_other():
    save = resuming._saving(lambda cfg, trainer, epoch_itr, val_loss: "saved")
    plateau, other = resuming.ResumablePlateau.__new__(resuming.ResumablePlateau), SimpleNamespace()
    for schedule, ended in ((plateau, False), (other, True)):
        assert save(None, SimpleNamespace(lr_scheduler=schedule), SimpleNamespace(end_of_epoch=lambda ended=ended: ended), 3.0) == "saved"
    assert plateau.pending is None, "a validation within an epoch ends no epoch"
    assert vars(other) == {}
    save(None, SimpleNamespace(lr_scheduler=plateau), SimpleNamespace(end_of_epoch=lambda: True), 3.0)
    assert plateau.pending == 3.0


@pytest.mark.parametrize("reset_dataloader", [False, True])
@pytest.mark.parametrize("reset_optimizer", [False, True])
def test_the_average_goes_on_with_the_optimizer_alone(reset_dataloader, reset_optimizer):
    """fairseq gives a task its state unless ``--reset-dataloader`` is given; a new optimizer begins a new average."""
    task, given, saved = make_task(average="asgd", reset_optimizer=reset_optimizer), [], {"average": 1}
    task.set_average = given.append

    def load_checkpoint(cfg: object, trainer: object) -> tuple[object, object]:
        if not reset_dataloader:
            task.set_checkpoint_dict(saved)
        return {type(task).__name__: saved}, SimpleNamespace(iterations_in_epoch=0)

    load = resuming._loading(load_checkpoint)
    load(SimpleNamespace(reset_dataloader=reset_dataloader, reset_optimizer=reset_optimizer), SimpleNamespace(task=task))
    assert given == ([] if reset_optimizer else [saved])


@pytest.mark.parametrize("forgets", [{}, {"reset_meters": True}, {"reset_optimizer": True}])
def test_patience_forgets_what_fairseq_forgets(monkeypatch, forgets):
    """Else a run goes on without a best validation, and ends after the first one, which takes the place of the best checkpoint."""
    counted = []
    monkeypatch.setattr("attlm_fairseq.tasks._trained_task.load_patience_dict", counted.append)
    task = make_task(**{"reset_meters": False, "reset_optimizer": False, **forgets})
    task.set_checkpoint_dict({"patience": {"best": 3.0, "num_runs": 2}})
    assert counted == ([] if forgets else [{"best": 3.0, "num_runs": 2}])


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({"best_checkpoint_metric": "loss"}, [9.0, 8.0]),  # nt-asgd judges by perplexity in any case
        ({"valid_subset": "other,valid"}, []),
        ({"blank_lines": "skip"}, []),
        ({"kind": "documents"}, []),
    ],
)
def test_validations_of_other_events_are_not_compared(changed, kept, caplog):
    given = {"average": "nt-asgd", "best_checkpoint_metric": "ppl", "valid_subset": "valid"}
    saving = make_task(**given)
    saving.cfg._name = "sentence_reset_lm"
    saving.average.perplexities = [9.0, 8.0]
    resumed = make_task(**{**given, "reset_optimizer": False, **changed})
    resumed.cfg._name = "document_reset_lm" if "kind" in changed else "sentence_reset_lm"
    extra_state = saving.get_checkpoint_dict()

    def load_checkpoint(cfg: object, trainer: object) -> tuple[object, object]:
        resumed.set_checkpoint_dict(extra_state[type(resumed).__name__])
        return extra_state, SimpleNamespace(iterations_in_epoch=0)

    cfg, trainer = SimpleNamespace(reset_dataloader=False, reset_optimizer=False), SimpleNamespace(task=resumed, lr_scheduler=None)
    with caplog.at_level(logging.WARNING):
        resuming._loading(load_checkpoint)(cfg, trainer)
    assert "the next validation counts as the best so far" in caplog.text
    assert resumed.average.perplexities == kept


def test_a_copy_of_a_checkpoint_is_whole_or_not_there(tmp_path, monkeypatch):
    """fairseq copies the best checkpoint to the last one after the best is saved."""
    best, last = tmp_path / "checkpoint_best.pt", tmp_path / "checkpoint_last.pt"
    best.write_text("new")
    last.write_text("before")
    resuming.complete_checkpoints()  # as the plugin does
    copy = fairseq.checkpoint_utils.PathManager.copy

    def killed(source: Path, target: Path) -> None:
        target.write_text("n")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(resuming.shutil, "copyfile", killed)
        with pytest.raises(KeyboardInterrupt):
            copy(str(best), str(last), overwrite=True)
    assert last.read_text() == "before"
    assert copy(str(best), str(last), overwrite=True)
    assert last.read_text() == "new"
    assert {path.name for path in tmp_path.iterdir()} == {best.name, last.name}
