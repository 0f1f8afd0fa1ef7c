"""Sentences as samples and their division into batches: nothing dropped, nothing invented."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, indexed_dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from attlm_fairseq.errors import InputError
from attlm_fairseq.tasks._lm_task import perplexity
from attlm_fairseq.tasks._sentence_dataset import BATCH_ORDERS, SentenceDataset
from attlm_fairseq.tasks.sentence_reset_lm import SentenceResetLMConfig, SentenceResetLMTask


def make_dictionary() -> Dictionary:
    dictionary = Dictionary()
    for word in "abcdefgh":
        dictionary.add_symbol(word)
    return dictionary


DICTIONARY = make_dictionary()
EOS, PAD = DICTIONARY.eos(), DICTIONARY.pad()


def make_dataset(lengths: list[int], **options) -> SentenceDataset:
    """Lines of the given numbers of words, each word telling its line and place."""
    lines = [torch.tensor([4 + (line + place) % 8 for place in range(length)] + [EOS]) for line, length in enumerate(lengths)]
    return SentenceDataset(lines, [len(line) for line in lines], DICTIONARY, "corpus", **options)


def test_input_is_shifted_behind_the_end_symbol():
    dataset = make_dataset([3, 0, 1])
    batch = dataset.collater([dataset[0], dataset[1], dataset[2]])
    assert batch["net_input"]["src_tokens"].tolist() == [[EOS, 4, 5, 6], [EOS, PAD, PAD, PAD], [EOS, 6, PAD, PAD]]
    assert batch["target"].tolist() == [[4, 5, 6, EOS], [EOS, PAD, PAD, PAD], [6, EOS, PAD, PAD]]
    assert (batch["ntokens"], batch["nsentences"]) == (7, 3)
    assert batch["net_input"]["src_lengths"].tolist() == [4, 1, 2]


def test_cutting_keeps_n_words_and_predicts_no_end_that_was_not_there():
    dataset = make_dataset([2, 3, 4, 9], training=True, cut=3)
    targets = [dataset[index]["target"].tolist() for index in range(4)]
    assert targets == [[4, 5, EOS], [5, 6, 7, EOS], [6, 7, 8], [7, 8, 9]]
    assert dataset.sizes.tolist() == [3, 4, 3, 3]


def test_blank_lines_are_kept_or_skipped():
    assert len(make_dataset([1, 0, 2])) == 3
    assert len(make_dataset([1, 0, 2], skip_blank=True)) == 2
    assert make_dataset([1, 0, 2], skip_blank=True)[1]["target"].tolist() == [6, 7, EOS]
    with pytest.raises(InputError, match="no sentences"):
        make_dataset([0, 0], skip_blank=True)
    with pytest.raises(InputError, match="no sentences"):
        make_dataset([])


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 12), min_size=1, max_size=60),
    order=st.sampled_from(BATCH_ORDERS),
    max_sentences=st.one_of(st.none(), st.integers(1, 9)),
    max_tokens=st.one_of(st.none(), st.integers(13, 40)),
    seed=st.integers(0, 5),
)
def test_every_sentence_is_in_exactly_one_batch_within_the_limits(lengths, order, max_sentences, max_tokens, seed):
    dataset = make_dataset(lengths)
    batches = dataset.batches(order, seed, max_sentences, max_tokens)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert batch
        assert max_sentences is None or len(batch) <= max_sentences
        assert max_tokens is None or len(batch) * max(dataset.sizes[batch]) <= max_tokens
    assert batches == dataset.batches(order, seed, max_sentences, max_tokens)


def test_orders():
    lengths = np.random.RandomState(0).randint(0, 30, 200).tolist()
    dataset = make_dataset(lengths)
    corpus = dataset.batches("corpus", 1, 8, None)
    assert [index for batch in corpus for index in batch] == list(range(200))
    assert dataset.batches("shuffled", 1, 8, None) != dataset.batches("shuffled", 2, 8, None)
    by_length = dataset.batches("length", 1, 8, None)
    spread = [max(dataset.sizes[batch]) - min(dataset.sizes[batch]) for batch in by_length]
    assert max(spread) <= 4  # 25 batches over 30 lengths
    assert [dataset.sizes[batch[0]] for batch in by_length] != sorted(dataset.sizes[batch[0]] for batch in by_length)


def test_a_number_of_words_to_cut_at_is_not_negative():
    with pytest.raises(InputError, match="--cut-sentences -3"):
        make_dataset([3, 0], training=True, cut=-3)


@pytest.mark.parametrize("symbol", ["<s>", "<pad>", "</s>"])
@pytest.mark.parametrize("implementation", ["list", "mmap", "lazy"])
@pytest.mark.parametrize("skip_blank", [True, False])
def test_fairseqs_own_symbols_are_no_words(tmp_path, symbol, implementation, skip_blank):
    texts = ["", "a b", "<unk> h", f"c {symbol} d", "e"]
    lines = [DICTIONARY.encode_line(text, add_if_not_exist=False) for text in texts]

    def made(lines: list[torch.Tensor], name: str) -> SentenceDataset:
        if implementation != "list":
            builder = indexed_dataset.make_builder(str(tmp_path / f"{name}.bin"), implementation, vocab_size=len(DICTIONARY))
            for line in lines:
                builder.add_item(line)
            builder.finalize(str(tmp_path / f"{name}.idx"))
            lines = indexed_dataset.make_dataset(str(tmp_path / name), implementation, fix_lua_indexing=True)
        return SentenceDataset(lines, [len(line) for line in lines], DICTIONARY, "corpus", skip_blank=skip_blank)

    with pytest.raises(InputError, match=rf"^corpus:4: found the word '{symbol}'"):
        made(lines, "whole")
    assert len(made([*lines[:3], lines[4]], "without")) == 4 - skip_blank


def write_split(folder: Path, split: str, texts: Iterable[str]) -> None:
    """A split of one line for each text, as fairseq-preprocess writes it, and the dictionary."""
    folder.mkdir(exist_ok=True)
    DICTIONARY.save(str(folder / "dict.txt"))
    builder = indexed_dataset.make_builder(str(folder / f"{split}.bin"), "mmap", vocab_size=len(DICTIONARY))
    for text in texts:
        builder.add_item(DICTIONARY.encode_line(text, add_if_not_exist=False))
    builder.finalize(str(folder / f"{split}.idx"))


def task_of(*folders: Path) -> SentenceResetLMTask:
    options = {"data": ":".join(map(str, folders)), "train_subset": "train", "dataset_impl": None}
    return SentenceResetLMTask.setup_task(OmegaConf.merge(SentenceResetLMConfig, options))


def test_each_epoch_reads_the_next_part_of_the_data(tmp_path):
    for part in "ab":
        write_split(tmp_path / part, "train", [part])
    task, found = task_of(tmp_path / "a", tmp_path / "b"), []
    for epoch in (1, 2, 3):
        task.load_dataset("train", epoch=epoch)
        found.append(DICTIONARY.string(task.dataset("train")[0]["target"]))
    assert found == ["a", "b", "a"]


def test_a_part_may_lack_a_dictionary(tmp_path):
    for part in "ab":
        write_split(tmp_path / part, "train", [part])
    (tmp_path / "b" / "dict.txt").unlink()
    assert task_of(tmp_path / "a", tmp_path / "b").dictionary.symbols == DICTIONARY.symbols


def test_words_of_all_shards_of_the_training_text_are_counted(tmp_path):
    """``train1`` and so on next to ``train``, which fairseq's trainer reads as one text."""
    write_split(tmp_path, "train", ["a b"])
    write_split(tmp_path, "train1", ["b c", ""])
    counts = task_of(tmp_path).word_counts()
    assert [int(counts[DICTIONARY.index(word)]) for word in ("a", "b", "c", "</s>")] == [1, 2, 1, 3]


def test_batches_of_training_are_in_the_order_that_is_asked_for_and_those_of_evaluation_of_like_length():
    lengths = np.random.RandomState(0).randint(0, 30, 40).tolist()

    def epochs(order: str, training: bool) -> list[list[list[int]]]:
        task, dataset = SentenceResetLMTask(SentenceResetLMConfig(batch_order=order), DICTIONARY), make_dataset(lengths, training=training)
        batches = [task.get_batch_iterator(dataset, None, 4, epoch=epoch).next_epoch_itr() for epoch in (1, 2)]
        return [[batch["id"].tolist() for batch in of_epoch] for of_epoch in batches]

    consecutive = [list(range(begin, begin + 4)) for begin in range(0, 40, 4)]
    assert epochs("corpus", True) == [consecutive] * 2
    one, other = epochs("shuffled", True)
    assert one != other, "each epoch has an order of its own"
    for batches in epochs("corpus", False):
        assert max(max(lengths[index] for index in batch) - min(lengths[index] for index in batch) for batch in batches) < 10


@pytest.mark.parametrize(("typed", "prefix"), [([EOS, 4, 5], [[4, 5]]), ([EOS], None)])
def test_a_typed_line_is_the_prefix_to_continue(typed, prefix):
    task, given = SentenceResetLMTask(SentenceResetLMConfig(), DICTIONARY), {}
    generator = SimpleNamespace(generate=lambda models, sample, **options: given.update(options))
    task.inference_step(generator, [], {"net_input": {"src_tokens": torch.tensor([typed])}})
    assert given["bos_token"] == EOS
    assert (None if given["prefix_tokens"] is None else given["prefix_tokens"].tolist()) == prefix


def test_a_perplexity_beyond_all_numbers_is_infinite():
    assert perplexity(math.log(2)) == 2.0
    assert perplexity(1000.0) == math.inf


@pytest.mark.parametrize("symbol", ["<s>", "<pad>", "</s>"])
def test_a_typed_line_with_one_is_shown_as_it_was_read(symbol):
    task = SentenceResetLMTask(SentenceResetLMConfig(), DICTIONARY)
    lines = [DICTIONARY.encode_line(text, add_if_not_exist=False).long() for text in ("a b", f"a {symbol} unheard-of")]
    with pytest.raises(InputError, match=rf"^found the word '{symbol}', .* in the line 'a {symbol} <unk>', as it was read: leave it out"):
        task.build_dataset_for_inference(lines, [len(line) for line in lines])
    assert len(task.build_dataset_for_inference(lines[:1], [3])) == 1


@pytest.mark.parametrize("option", ["--max-tokens", "--max-tokens-valid"])
def test_a_line_longer_than_a_batch_is_named(option):
    with pytest.raises(InputError, match=rf"^corpus:3: the line has 21 tokens.* than {option} 20 .* raise {option},"):
        make_dataset([3, 0, 20, 5]).batches("length", 1, None, 20, option)
