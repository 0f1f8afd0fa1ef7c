"""Documents in rows of segments: every token once, in order, rows that belong to their shard, and the state that goes along them."""

from __future__ import annotations

import pytest
import torch
from fairseq.data import Dictionary
from test_language_model import VARIANTS, make_model

from attlm_fairseq.errors import InputError
from attlm_fairseq.tasks._carried_state import CarriedState
from attlm_fairseq.tasks._document_dataset import DocumentDataset

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
            assert batch == {}
            continue
        inputs = batch["net_input"]
        for row, fresh, source, target in zip(
            inputs["rows"].tolist(), inputs["fresh"].tolist(), inputs["src_tokens"], batch["target"], strict=True
        ):
            assert row // rows == number % shards
            words = [dictionary[int(token)] for token in target if token != dictionary.pad()]
            before = [dictionary[int(token)] for token in source if token != dictionary.pad()]
            if fresh:
                read[row] = []
                documents.append(read[row])
            assert before == ["</s>", *read[row], *words][len(read[row]) :][: len(words)]
            assert len(words) <= segment
            read[row].extend(words)
    assert sorted(map(" ".join, documents)) == sorted(DOCUMENTS)
    assert len(batches) % shards == 0


@pytest.mark.parametrize("segment", [1, 3, 50])
@pytest.mark.parametrize(("rows", "shards"), [(1, 1), (3, 1), (1, 2), (2, 3)])
def test_in_training_rows_are_even_and_cut_documents_begin_anew(dictionary, segment, rows, shards):
    made = dataset(dictionary, TEXT, segment=segment)
    read: dict[int, list[tuple[int, int]]] = {}
    for indices in made.batches("corpus", 5, rows, shards, whole=False):
        for index in indices:
            row, fresh, document, number = made.place(index)
            assert fresh == (row not in read or number == 0)
            read.setdefault(row, []).append((document, number))
    in_rows = [place for row in sorted(read) for place in read[row]]
    assert in_rows == [(document, number) for document in range(4) for number in range(-(-made.tokens[document] // segment))]
    lengths = [len(read.get(row, [])) for row in range(rows * shards)]
    assert max(lengths) - min(lengths) <= 1


def test_the_order_of_documents_depends_on_the_seed_alone(dictionary):
    made = dataset(dictionary, TEXT, segment=2)
    assert made.batches("shuffled", 5, 2) == made.batches("shuffled", 5, 2)
    assert len({str(made.batches("shuffled", seed, 2)) for seed in range(9)}) > 1
    assert len({str(made.batches("corpus", seed, 2)) for seed in range(9)}) == 1


def test_a_marker_separates_and_blank_lines_are_text(dictionary):
    made = dataset(dictionary, "<doc>\na b\n\nc\n<doc>\nd\n<doc>", segment=10, marker="<doc>")
    words = [[dictionary[int(token)] for token in made[index]["target"]] for index in range(len(made))]
    assert words == [["a", "b", "</s>", "</s>", "c", "</s>"], ["d", "</s>"]]


def test_nothing_to_read_is_said(dictionary):
    with pytest.raises(InputError, match="'<doc>'"):
        dataset(dictionary, "a\nb", segment=3, marker="<doc>")
    with pytest.raises(InputError, match="no text"):
        dataset(dictionary, "\n\n", segment=3)


@pytest.mark.parametrize("variant", VARIANTS)
def test_carried_rows_equal_whole_documents(dictionary, variant):
    """The features of every token, read segment by segment in two rows and saved and loaded between, are those of its document at once."""
    model = make_model(variant)
    made = dataset(dictionary, TEXT, segment=3)
    carried = CarriedState()
    got: dict[int, list[torch.Tensor]] = {}
    for indices in made.batches("corpus", 1, 2):
        inputs = made.collater([made[index] for index in indices])["net_input"]
        features, _, state = model.read(inputs["src_tokens"], carried.take(model, inputs["rows"], inputs["fresh"]))
        carried.put(model, inputs["rows"], state)
        resumed = CarriedState()
        resumed.load_state_dict(carried.state_dict())
        carried = resumed
        for row, index in enumerate(indices):
            got.setdefault(made.place(index)[2], []).append(features[row, : made.num_tokens(index)])
    for document, text in enumerate(DOCUMENTS):
        tokens = [dictionary.index(word) for word in text.split()]
        expected, _ = model.extract_features(torch.tensor([[dictionary.eos(), *tokens[:-1]]]))
        torch.testing.assert_close(torch.cat(got[document]), expected[0], rtol=0, atol=1e-10)
