"""Documents in rows of segments: every token once, in order, rows that belong to their shard, and the state that goes along them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from fairseq.tasks import FairseqTask
from small_models import LAYERS, SIZE, VARIANTS, make_model

from attlm_fairseq.errors import InputError
from attlm_fairseq.models._decoder import MemoryDecoder
from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.modules.state import Carried
from attlm_fairseq.tasks import document_reset_lm
from attlm_fairseq.tasks._absent import absent_batch, is_absent
from attlm_fairseq.tasks._carried_state import CarriedState
from attlm_fairseq.tasks._document_dataset import DocumentDataset, Stretch, random_length, rotate
from attlm_fairseq.tasks.document_reset_lm import DocumentResetLMConfig, DocumentResetLMTask

TEXT = "a b c\nd e\n\nf\n\n\ng h i j a b c\na\nb b b\n\nc d"
DOCUMENTS = ["a b c </s> d e </s>", "f </s>", "g h i j a b c </s> a </s> b b b </s>", "c d </s>"]


@pytest.fixture
def dictionary() -> Dictionary:
    made = Dictionary()
    for word in [*"abcdefghij", "<doc>"]:
        made.add_symbol(word)
    return made


def dataset(dictionary: Dictionary, text: str, **options: object) -> DocumentDataset:
    lines = [dictionary.encode_line(line, add_if_not_exist=False).long() for line in text.split("\n")]
    return DocumentDataset(lines, [len(line) for line in lines], dictionary, "text", **options)


@pytest.mark.parametrize("segment", [1, 3, 50])
@pytest.mark.parametrize(("rows", "shards"), [(1, 1), (3, 1), (1, 2), (2, 3)])
@pytest.mark.parametrize("order", ["corpus", "shuffled"])
def test_every_token_is_read_once_in_its_row_and_in_order(dictionary, segment, rows, shards, order):
    made = dataset(dictionary, TEXT, segment=segment)
    batches = made.batches(order, 5, rows, shards)
    read: dict[int, list[str]] = {}
    documents = []
    for number, indices in enumerate(batches):
        batch = made.collater([made[index] for index in indices])
        if not indices:
            assert is_absent(batch)
            continue
        inputs = batch["net_input"]
        for row, starts, source, target in zip(
            inputs["rows"].tolist(), inputs["starts"].tolist(), inputs["src_tokens"], batch["target"], strict=True
        ):
            assert row // rows == number % shards
            words = [dictionary[int(token)] for token in target if token != dictionary.pad()]
            before = [dictionary[int(token)] for token in source if token != dictionary.pad()]
            if starts:
                read[row] = []
                documents.append(read[row])
            assert before == ["</s>", *read[row], *words][len(read[row]) :][: len(words)]
            assert len(words) <= segment
            read[row].extend(words)
    assert sorted(map(" ".join, documents)) == sorted(DOCUMENTS)
    assert len(batches) % shards == 0
    of_segments = [index.length for indices in batches for index in indices]
    assert len(made) == len(of_segments)
    assert sorted(made.sizes) == sorted(of_segments) == sorted(map(made.num_tokens, (index for indices in batches for index in indices)))


@pytest.mark.parametrize("segment", [1, 3, 50])
@pytest.mark.parametrize(("rows", "shards"), [(1, 1), (3, 1), (1, 2), (2, 3)])
def test_in_training_rows_are_even_and_cut_documents_begin_anew(dictionary, segment, rows, shards):
    made = dataset(dictionary, TEXT, segment=segment)
    read: dict[int, list[tuple[int, int]]] = {}
    ended: dict[int, list[tuple[bool, bool]]] = {}
    for indices in made.batches("corpus", 5, rows, shards, whole=False):
        for index in indices:
            row, number = index.row, index.begin // segment
            assert index.begin % segment == 0
            assert index.starts == (row not in read or number == 0)
            ended.setdefault(row, []).append((index.starts, index.ends))
            read.setdefault(row, []).append((index.document, number))
    for of_row in ended.values():  # a document's last segment in a row is the one before the next's first, or the row's last
        assert [ends for _, ends in of_row] == [starts for starts, _ in of_row[1:]] + [True]
    in_rows = [place for row in sorted(read) for place in read[row]]
    assert in_rows == [(document, number) for document in range(4) for number in range(-(-made.tokens[document] // segment))]
    lengths = [len(read.get(row, [])) for row in range(rows * shards)]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("order", ["corpus", "rotated", "shuffled"])
@pytest.mark.parametrize(("rows", "shards"), [(1, 1), (3, 1), (2, 3)])
def test_random_lengths_read_every_token_once(dictionary, order, rows, shards):
    """All rows of a step have the same length but for those whose document ends; each row reads its documents in order."""
    made = dataset(dictionary, "\n\n".join(["a b c d e f g h i j " * 40, "b c\n" * 60, "c " * 30]), segment=12)
    batches = made.batches(order, 3, rows, shards, whole=False, random_lengths=True)
    read: dict[int, list[tuple[int, int]]] = {row: [] for row in range(rows * shards)}
    lengths = []
    for step in range(0, len(batches), shards):
        together = [segment for batch in batches[step : step + shards] for segment in batch]
        lengths.append(max(segment.length for segment in together))
        assert all(segment.length == lengths[-1] or segment.ends for segment in together if not all(each.ends for each in together))
        for segment in together:
            before = read[segment.row][-1:]
            assert segment.starts == (before != [(segment.document, segment.begin - 1)])
            read[segment.row] += [(segment.document, segment.begin + place) for place in range(segment.length)]
    every = sorted(place for of_row in read.values() for place in of_row)
    assert every == [(document, place) for document, tokens in enumerate(made.tokens) for place in range(tokens)]
    of_documents = [Counter(document for document, _ in of_row).values() for of_row in read.values()]
    sizes = [sum(-(-tokens // 12) for tokens in of_row) for of_row in of_documents]
    assert max(sizes) - min(sizes) <= 1, "rows are even"
    assert len(set(lengths)) > 3
    corpus = made.batches("corpus", 3, rows, shards, whole=False, random_lengths=True)
    begins = [next((each.document, each.begin) for batch in corpus for each in batch if each.row == row) for row in read]
    assert order != "rotated" or [of_row[0] for of_row in read.values()] != begins
    assert batches != made.batches(order, 4, rows, shards, whole=False, random_lengths=True), "other lengths in another epoch"


def test_random_lengths_of_rows_with_short_documents_leave_no_thin_batches(dictionary):
    made = dataset(dictionary, "\n\n".join(["a b c d e f g h i j " * 60, *["c d"] * 50]), segment=12)
    batches = made.batches("corpus", 3, 2, whole=False, random_lengths=True)
    assert sum(len(batch) < 2 for batch in batches) < 0.15 * len(batches)


def test_random_lengths_are_normal_around_the_length_or_half_of_it():
    random = np.random.RandomState(0)
    drawn = np.array([random_length(70, random) for _ in range(20_000)])
    halves = drawn < 52.5
    assert abs(halves.mean() - 0.05) < 0.006
    assert abs(drawn[~halves].mean() - 70) < 0.2
    assert abs(drawn[halves].mean() - 35) < 0.6
    assert abs(drawn[~halves].std() - 5) < 0.2
    assert min(random_length(6, random) for _ in range(1000)) == 5
    assert {random_length(1, random) >= 1 for _ in range(1000)} == {True}


def test_rotation_reads_around():
    queue = [Stretch(0, 3, 10), Stretch(1, 0, 4)]
    assert rotate(queue, 0) == queue
    assert rotate(queue, 2) == [Stretch(0, 5, 10), Stretch(1, 0, 4), Stretch(0, 3, 5)]
    assert rotate(queue, 7) == [Stretch(1, 0, 4), Stretch(0, 3, 10)]
    assert rotate(queue, 9) == [Stretch(1, 2, 4), Stretch(0, 3, 10), Stretch(1, 0, 2)]


def test_the_memory_alone_starts_again(dictionary):
    model, made = make_model("combined"), dataset(dictionary, TEXT, segment=3)
    carried = CarriedState(Carried(memory=False))
    for indices in made.batches("corpus", 1, 2)[:2]:
        inputs = made.collater([made[index] for index in indices])["net_input"]
        before = carried.take(model, inputs["rows"], inputs["starts"])
        assert before.memory[-1].size(1) == 0
        _, _, after = model.read(inputs["src_tokens"], before)
        carried.put(model, inputs["rows"], inputs["ends"], after)
    assert bool(before.recurrent[0].any())


def test_the_order_of_documents_depends_on_the_seed_alone(dictionary):
    made = dataset(dictionary, TEXT, segment=2)
    assert made.batches("shuffled", 5, 2) == made.batches("shuffled", 5, 2)
    assert len({str(made.batches("shuffled", seed, 2)) for seed in range(9)}) > 1
    assert len({str(made.batches("corpus", seed, 2)) for seed in range(9)}) == 1


def test_a_marker_separates_and_blank_lines_are_text(dictionary):
    made = dataset(dictionary, "<doc>\na b\n\nc\n<doc>\nd\n<doc>", segment=10, marker="<doc>")
    words = [[dictionary[int(token)] for token in made[index]["target"]] for [index] in made.batches("corpus", 1, 1)]
    assert words == [["a", "b", "</s>", "</s>", "c", "</s>"], ["d", "</s>"]]


def test_nothing_to_read_is_said(dictionary):
    with pytest.raises(InputError, match="'<doc>'"):
        dataset(dictionary, "a\nb", segment=3, marker="<doc>")
    with pytest.raises(InputError, match="no text"):
        dataset(dictionary, "\n\n", segment=3)


def test_fairseqs_own_symbols_separate_but_are_no_words(dictionary):
    assert len(dataset(dictionary, "a\n<s>\nb", segment=3, marker="<s>").documents) == 2
    with pytest.raises(InputError, match=r"^text:3: found the word '<pad>'"):
        dataset(dictionary, "a\n\nb <pad>", segment=3)


@pytest.mark.parametrize("variant", VARIANTS)
def test_carried_rows_equal_whole_documents(dictionary, variant):
    """The features of every token, read segment by segment in two rows and saved and loaded between, are those of its document at once."""
    model = make_model(variant)
    made = dataset(dictionary, TEXT, segment=3)
    carried = CarriedState()
    got: dict[int, list[torch.Tensor]] = {}
    for indices in made.batches("corpus", 1, 2):
        inputs = made.collater([made[index] for index in indices])["net_input"]
        features, _, state = model.read(inputs["src_tokens"], carried.take(model, inputs["rows"], inputs["starts"]))
        carried.put(model, inputs["rows"], inputs["ends"], state)
        resumed = CarriedState()
        resumed.load_state_dict(carried.state_dict())
        carried = resumed
        for row, index in enumerate(indices):
            got.setdefault(index.document, []).append(features[row, : index.length])
    assert carried.state_dict() == {}
    for document, text in enumerate(DOCUMENTS):
        tokens = [dictionary.index(word) for word in text.split()]
        expected, _ = model.extract_features(torch.tensor([[dictionary.eos(), *tokens[:-1]]]))
        torch.testing.assert_close(torch.cat(got[document]), expected[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("variant", ["single", "combined", "averaging", "selection tied"])
@pytest.mark.parametrize("sentences", [1, 2])
def test_state_and_memory_are_kept_for_so_many_sentences(dictionary, variant, sentences):
    """Every group of sentences of a document is read as by itself; groups never cross documents."""
    model = make_model(variant)
    made = dataset(dictionary, TEXT, segment=3, sentences=sentences)
    groups = [
        " ".join(lines[first : first + sentences])
        for lines in ([f"{line} </s>" for line in text.removesuffix(" </s>").split(" </s> ")] for text in DOCUMENTS)
        for first in range(0, len(lines), sentences)
    ]
    assert len(groups) == {1: 7, 2: 5}[sentences]
    got: dict[int, list[torch.Tensor]] = {}
    carried = CarriedState()
    for indices in made.batches("corpus", 1, 2):
        inputs = made.collater([made[index] for index in indices])["net_input"]
        features, _, state = model.read(inputs["src_tokens"], carried.take(model, inputs["rows"], inputs["starts"]))
        carried.put(model, inputs["rows"], inputs["ends"], state)
        for row, index in enumerate(indices):
            got.setdefault(index.document, []).append(features[row, : index.length])
    for number, text in enumerate(groups):
        tokens = [dictionary.index(word) for word in text.split()]
        expected, _ = model.extract_features(torch.tensor([[dictionary.eos(), *tokens[:-1]]]))
        torch.testing.assert_close(torch.cat(got[number]), expected[0], rtol=0, atol=1e-10)


GROWING = ("amsrn_lm", "kvp_lstm_lm", "lstmn_lm", "pointer_lstm_lm", "pointer_mogrifier_lm")  # families with one slot per state
SLOTS = [variant for variant in VARIANTS if VARIANTS[variant][0] in GROWING or variant.startswith(("combined", "dot"))]


def read(model: LanguageModel, made: DocumentDataset, batches: list[list[int]], carried: CarriedState) -> tuple[list[torch.Tensor], int]:
    """The logits of all batches, and the most numbers of a row that were carried from one to the next."""
    logits, most = [], 0
    for indices in batches:
        inputs = made.collater([made[index] for index in indices])["net_input"]
        features, found, state = model.read(inputs["src_tokens"], carried.take(model, inputs["rows"], inputs["starts"]))
        carried.put(model, inputs["rows"], inputs["ends"], state)
        logits.append(model.output(features, found))
        parts = carried.state_dict().get("recurrent" if model.recurrence.name == "lstmn" else "memory", [])
        most = max(most, max((part[0].numel() for part in parts), default=0))
    return logits, most


@pytest.mark.parametrize("variant", VARIANTS)
def test_which_memories_have_slots(variant):
    assert make_model(variant).initial_state(1).has_slots == (variant in SLOTS)


@pytest.mark.parametrize("variant", VARIANTS)
def test_memory_slots_bound_what_is_carried(dictionary, variant):
    model = make_model(variant)
    made = dataset(dictionary, "a b c d e f g h i j\n" * 3, segment=3)
    batches = made.batches("corpus", 1, 1)
    (everything, most), (enough, same), (two, bounded) = (read(model, made, batches, CarriedState(Carried(slots))) for slots in (0, 34, 2))
    torch.testing.assert_close(enough, everything, rtol=0, atol=0)  # 33 tokens and the initial state of AMSRN
    assert same == most
    if variant in SLOTS:
        of_slot = {"LSTMN": 2 * LAYERS * SIZE}.get(variant, model.reader.feature_size // (2 if "selection" in variant else 1))
        assert bounded == 2 * of_slot < most
        torch.testing.assert_close(two[0], everything[0], rtol=0, atol=0)
        assert not torch.allclose(two[-1], everything[-1])
    else:
        torch.testing.assert_close(two, everything, rtol=0, atol=0)
        assert bounded == most


def make_task(dictionary: Dictionary, text: str = TEXT, **options: object) -> DocumentResetLMTask:
    given = {"bptt": 2, "batch_size": 2, "max_tokens": None, "seed": 1, "train_subset": "train"} | options
    made = DocumentResetLMTask(DocumentResetLMConfig(**given), dictionary)
    made.datasets["train"] = dataset(
        dictionary, text, segment=made.cfg.bptt, marker=made.cfg.document_marker, sentences=made.cfg.reset_every, training=True
    )
    return made


def saved_after(task: DocumentResetLMTask, steps: int | None) -> dict:
    """What a checkpoint keeps after so many batches of an epoch, or all."""
    made = task.datasets["train"]
    read(make_model("combined"), made, task.epoch_batches(made, 1, 2, None, 1)[:steps], task.training_state)
    return task.get_checkpoint_dict()["DocumentResetLMTask"]


def test_in_the_midst_of_documents_nothing_may_change(dictionary):
    text = "a b c d e f g\n" * 6
    saved = saved_after(make_task(dictionary, text), 2)
    make_task(dictionary, text).set_checkpoint_dict(saved)
    make_task(dictionary, text, batch_size=None, max_tokens=5).set_checkpoint_dict(saved)  # two rows as well
    make_task(dictionary, text, reset="segment").set_checkpoint_dict(saved)  # carries nothing
    for name, value, before in (("bptt", 3, 2), ("batch_size", 3, 2), ("seed", 4, 1), ("document_order", "corpus", "shuffled")):
        option = f"--{name.replace('_', '-')}"
        with pytest.raises(InputError, match=rf"with {option} {before!r}, and this run has {option} {value!r};.*--reset-dataloader"):
            make_task(dictionary, text, **{name: value}).set_checkpoint_dict(saved)
    with pytest.raises(InputError, match=r"--document-marker ''.*--document-marker 'a'"):
        make_task(dictionary, "b\na\nc", document_marker="a").set_checkpoint_dict(saved)
    with pytest.raises(InputError, match=r"tokens: 48, .* tokens: 56"):
        make_task(dictionary, text + "a b c d e f g").set_checkpoint_dict(saved)
    with pytest.raises(InputError, match=r"--distributed-world-size 2, .*--distributed-world-size 1"):
        make_task(dictionary, text).set_checkpoint_dict({**saved, "ranks": saved["ranks"] * 2})


def test_a_checkpoint_without_its_options_is_taken_at_its_word(dictionary):
    """Those written before the options were kept."""
    text = "a b c d e f g\n" * 6
    saved = saved_after(make_task(dictionary, text), 2)
    resumed = make_task(dictionary, text)
    resumed.set_checkpoint_dict({"ranks": saved["ranks"]})
    assert resumed.training_state.state_dict()["rows"][0].tolist() == [0, 1]


def test_between_epochs_and_segments_anything_may_change(dictionary):
    saved = saved_after(make_task(dictionary), None)
    assert saved["ranks"] == [{}]
    make_task(dictionary, bptt=5, batch_size=7, seed=2).set_checkpoint_dict(saved)
    make_task(dictionary).set_checkpoint_dict({**saved, "ranks": [{}, {}, {}]})


def test_a_document_whose_state_was_never_saved_is_said(dictionary):
    """A run with --reset segment that is resumed with --reset document."""
    made = make_task(dictionary, "a b c d e f g\n" * 6)
    segments = made.datasets["train"]
    with pytest.raises(InputError, match=r"no state for documents.*--reset-dataloader"):
        read(make_model("plain"), segments, made.epoch_batches(segments, 1, 2, None, 1)[1:], made.training_state)
    model, rows, starts = make_model("plain"), torch.tensor([0, 1]), torch.tensor([True, False])
    carried = CarriedState()
    carried.take(model, rows, torch.tensor([True, True]))  # the batch is lost: no state is put back
    with pytest.raises(InputError, match="was lost, for lack of GPU memory"):
        carried.take(model, rows, starts)
    try:
        raise FloatingPointError("gradients are Nan/Inf")
    except FloatingPointError:  # in which fairseq reads the batch again
        with pytest.raises(InputError, match=r"^gradients are Nan/Inf: if training has diverged, give a smaller --lr"):
            carried.take(model, rows, starts)


def test_a_batch_without_room_for_a_segment_is_said(dictionary):
    task = make_task(dictionary, max_tokens=100, max_tokens_valid=1)
    task.trains = True
    valid = dataset(dictionary, TEXT, segment=2)
    for made, option in ((task.datasets["train"], "--max-tokens"), (valid, "--max-tokens-valid")):
        with pytest.raises(InputError, match=f"^{option} 1 has no room for one segment of --bptt 2"):
            task.epoch_batches(made, 1, None, 1, 1)


@pytest.mark.parametrize(("limits", "rows"), [({}, 32), ({"max_tokens": 10}, 5), ({"max_tokens": 10, "batch_size": 7}, 7)])
def test_evaluation_reads_as_many_rows_as_there_is_room_for(dictionary, limits, rows):
    text = "\n\n".join(["a b c d"] * 40) + "\n"
    task = make_task(dictionary)
    batches = list(task.eval_lm_dataloader(dataset(dictionary, text, segment=2), **limits))
    assert max(batch["target"].size(0) for batch in batches) == rows
    with pytest.raises(InputError, match=r"^--max-tokens 1 has no room"):
        task.eval_lm_dataloader(dataset(dictionary, text, segment=2), max_tokens=1)
    assert task.with_state({}, task.carried_state()) == {}  # what fairseq gives a shard with fewer batches


def test_evaluation_of_a_shard_without_text_is_refused(dictionary):
    """fairseq-eval-lm would print a perplexity of 1."""
    task, text = make_task(dictionary), dataset(dictionary, "a b c d\nb a\n", segment=2)
    assert list(task.eval_lm_dataloader(text, num_shards=2, shard_id=0))
    with pytest.raises(InputError, match=r"^--num-shards 2 leaves no text for --shard-id 1: give fewer shards"):
        task.eval_lm_dataloader(text, num_shards=2, shard_id=1)


def test_a_segment_has_a_token_at_least(dictionary):
    for bptt in (0, -1):
        with pytest.raises(InputError, match=f"--bptt {bptt}: a segment has at least 1 token"):
            make_task(dictionary, bptt=bptt)


def test_a_negative_number_of_slots_is_said(dictionary):
    with pytest.raises(InputError, match="--memory-slots -1"):
        make_task(dictionary, memory_slots=-1)


def test_when_to_reset_is_checked(dictionary):
    with pytest.raises(InputError, match="--reset-every -1: give the number of sentences"):
        make_task(dictionary, reset_every=-1)
    with pytest.raises(InputError, match="--reset-every has no effect with --reset segment"):
        make_task(dictionary, reset_every=2, reset="segment")
    task = make_task(dictionary, reset_every=3)
    saved = saved_after(task, 1)
    with pytest.raises(InputError, match="--reset-every 3, and this run has --reset-every 2"):
        make_task(dictionary, reset_every=2).set_checkpoint_dict(saved)


@pytest.mark.parametrize(
    ("disable", "after", "saved", "expected"),
    [
        (False, 0, {"save_interval_updates": 1}, [False, False, False]),
        (True, 0, {"save_interval_updates": 1}, [True, True, True]),
        (False, 2, {"save_interval_updates": 1}, [True, True, False]),
        (True, 0, {"save_interval_updates": 2}, [False, True, False]),
        (True, 0, {"max_update": 3}, [False, False, True]),
        (True, 0, {"stop_time_hours": 0.5}, [True, True, True]),
        (True, 0, {}, [False, False, False]),
    ],
)
def test_states_are_gathered_where_a_checkpoint_may_follow(dictionary, monkeypatch, disable, after, saved, expected):
    """Before a validation, and after each step that fairseq may save without one."""
    monkeypatch.setattr(FairseqTask, "train_step", lambda *unused, **too: (torch.zeros(()), 1, {}))
    monkeypatch.setattr(document_reset_lm, "world_size", lambda: 2)
    gathered = []
    monkeypatch.setattr(torch.distributed, "all_gather_object", lambda places, state: gathered.append(state))
    saved = {"save_interval_updates": 0, "max_update": 0, "stop_time_hours": 0} | saved
    made = make_task(dictionary, disable_validation=disable, validate_after_updates=after, **saved)
    after_steps = []
    for update in range(3):
        made.train_step(absent_batch(), torch.nn.Linear(1, 1), None, None, update)
        after_steps.append(bool(gathered))
        gathered.clear()
    assert after_steps == expected
    made.begin_valid_epoch(1, None)
    assert gathered == [{}]


def test_the_length_of_a_segment_whose_update_overflowed_is_forgotten(dictionary, monkeypatch):
    """--fp16: fairseq then forgets the gradients, and updates the weights with those of the next batch alone."""
    model, rates = torch.nn.Linear(1, 1), []

    def train_step(task, sample, model, *unused) -> tuple:
        model.weight.grad = torch.ones(1, 1)
        return torch.zeros(()), 1, {}

    class Optimizer:
        def get_lr(self) -> float:
            return 1.0

        def set_lr(self, rate: float) -> None:
            rates.append(rate)

    monkeypatch.setattr(FairseqTask, "train_step", train_step)
    monkeypatch.setattr(FairseqTask, "optimizer_step", lambda *unused, **named: None)
    made = make_task(dictionary, random_bptt=True, bptt=2, sentence_avg=False, save_interval_updates=0, max_update=0, stop_time_hours=0)

    def read(length: int) -> None:
        made.train_step({"target": torch.zeros(1, length), "net_input": {}}, model, None, None, 0)

    read(8)
    model.zero_grad()
    read(4)
    read(3)  # --update-freq 2
    made.optimizer_step(Optimizer(), model, 0)
    assert rates == [(4 + 3) / 2 / 2, 1.0]


def test_it_does_not_generate(dictionary):
    with pytest.raises(InputError, match="document_reset_lm does not generate: give --task sentence_reset_lm"):
        make_task(dictionary).build_generator([], None)


def test_an_empty_batch_of_fairseq_validate_is_one_line(dictionary):
    with pytest.raises(InputError, match="fairseq-validate runs as one process: give --distributed-world-size 1"):
        make_task(dictionary).valid_step(absent_batch(), None, None)


def test_what_a_batch_leaves_is_carried_only_once_its_loss_is_there(dictionary, monkeypatch):
    """fairseq validates a batch again that a GPU had no memory for."""
    decoder = MemoryDecoder(dictionary, make_model("combined", torch.float32, vocabulary=len(dictionary)))
    tokens, carried = torch.randint(4, len(dictionary), (2, 5)), CarriedState()
    rows, going = {"rows": torch.arange(2), "ends": torch.zeros(2, dtype=torch.bool)}, torch.zeros(2, dtype=torch.bool)
    decoder(tokens, target=tokens, carried=carried, starts=~going, **rows)
    with monkeypatch.context() as broken:
        broken.setattr(
            type(decoder.model.output), "loss", lambda *arguments: (_ for _ in ()).throw(torch.OutOfMemoryError("out of memory"))
        )
        with pytest.raises(torch.OutOfMemoryError):
            decoder(tokens, target=tokens, carried=carried, starts=going, **rows)
    first, again = CarriedState(), decoder(tokens, target=tokens, carried=carried, starts=going, **rows)[0]
    decoder(tokens, target=tokens, carried=first, starts=~going, **rows)
    torch.testing.assert_close(again, decoder(tokens, target=tokens, carried=first, starts=going, **rows)[0], rtol=0, atol=0)
