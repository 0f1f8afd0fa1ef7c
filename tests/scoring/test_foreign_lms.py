"""Language models of fairseq and Hugging Face: the libraries' own scores, histories, recognition by content, hostile folders."""

from __future__ import annotations

import inspect
import json
import math
import pickle
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from cli_runs import refused, run
from fairseq_runs import fairseq
from foreign_lms import FAIRSEQ, WORDS, write_bert, write_fairseq_lm, write_gpt2
from lm_files import write_arpa, write_checkpoint

import attlm_fairseq as attlm
from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.foreign_lms.fairseq_lm import load_fairseq_lm
from attlm_fairseq.scoring.foreign_lms.huggingface_lm import load_huggingface_lm
from attlm_fairseq.scoring.foreign_lms.huggingface_tokens import encode_words, encoded
from attlm_fairseq.scoring.foreign_lms.masked_lm import load_masked_lm
from attlm_fairseq.scoring.foreign_lms.sentence_frame import SentenceFrame
from attlm_fairseq.scoring.foreign_lms.token_lm import StepMemory, TokenScorer
from attlm_fairseq.scoring.lm_files import lm_kind, load_lm_files
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.scoring.mixture import MixtureScorer
from attlm_fairseq.scoring.scorer import SentenceScore
from attlm_fairseq.scoring.unknown_words.advice import advise_written_text
from attlm_fairseq.scoring.unknown_words.oov_policy import OOVPolicy, with_policy

SENTENCES = [["the", "cat", "sat"], ["the", "zebra", "sat", "on"], [], ["a", "dog", "ran"], ["the", "cat", "ran", "on", "the", "mat"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("foreign")
    write_gpt2(folder / "gpt2")
    for kind in FAIRSEQ:
        write_fairseq_lm(folder / kind / "lm.pt", kind)
    return folder


def of_fairseq(scorer: TokenScorer, before: Sequence[int], tokens: Sequence[int]) -> list[float]:
    """ln p of each token and of the sentence end, by one pass of the model over the whole sentence."""
    targets = torch.tensor([*tokens, scorer.lm.end])
    model = scorer.lm.model
    with torch.inference_mode():
        output = model(torch.tensor([[*before, *tokens]]))
        log_probs = model.get_normalized_probs(output, log_probs=True)[0, len(before) - 1 :]
    return log_probs[range(len(targets)), targets].tolist()


def test_threads_may_load_at_the_same_time(folder):
    """transformers patches torch while it loads, and standard error is put aside."""
    expected, before = load_huggingface_lm(folder / "gpt2").score(SENTENCES), sys.stderr
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: load_huggingface_lm(folder / "gpt2").score(SENTENCES), range(4)))
    assert found == [expected] * 4
    assert sys.stderr is before


@pytest.mark.parametrize("kind", FAIRSEQ)
def test_fairseq_gives_the_same_scores(folder, kind):
    scorer = load_fairseq_lm(folder / kind / "lm.pt", "lm")
    ids = scorer.lm.vocabulary.ids
    assert scorer.lm.incremental
    for words, score in zip(SENTENCES, scorer.score(SENTENCES), strict=True):
        assert score.log_probs == pytest.approx(of_fairseq(scorer, [2], ids(words)), abs=1e-4)
        assert score.oov == tuple(word == "zebra" for word in words)
    history = [["the", "dog"], ["a", "cat", "sat"]]
    before = [2, *ids(history[0]), 2, *ids(history[1]), 2]
    for words, score in zip(SENTENCES, scorer.after(history).score(SENTENCES), strict=True):
        assert score.log_probs == pytest.approx(of_fairseq(scorer, before, ids(words)), abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", FAIRSEQ)
def test_weights_are_float32_whatever_the_default_dtype(folder, kind, dtype):
    path = folder / kind / "lm.pt"
    [expected] = load_fairseq_lm(path).score([["the", "cat", "ran"]])
    torch.set_default_dtype(dtype)
    try:
        scorer = load_fairseq_lm(path)
        assert torch.get_default_dtype() == dtype
    finally:
        torch.set_default_dtype(torch.float32)
    assert scorer.score([["the", "cat", "ran"]]) == [expected]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", FAIRSEQ)
def test_a_program_may_load_them_under_autocast(folder, kind, precision):
    compute = DeviceConfig(precision=precision)
    expected = load_fairseq_lm(folder / kind / "lm.pt", compute=compute).score(SENTENCES)
    with torch.autocast("cpu", torch.bfloat16):
        scorer = load_fairseq_lm(folder / kind / "lm.pt", compute=compute)
        assert scorer.score(SENTENCES) == expected
    exact = load_fairseq_lm(folder / kind / "lm.pt").score(SENTENCES)
    assert [score.total for score in expected] == pytest.approx([score.total for score in exact], rel=0.05)


def test_a_decoder_that_cannot_be_stepped_reads_whole_prefixes(folder):
    scorer = load_fairseq_lm(folder / "lstm_lm" / "lm.pt")
    expected = scorer.score(SENTENCES)
    scorer.lm.incremental = False
    for score, other in zip(scorer.score(SENTENCES), expected, strict=True):
        assert score.log_probs == pytest.approx(other.log_probs, abs=1e-5)


def test_fairseq_eval_lm_gives_the_same_perplexity(folder):
    text = [" ".join(words) for words in SENTENCES if words]
    (folder / "test.txt").write_text("\n".join(text * 2) + "\n")
    dictionary = folder / "transformer_lm" / "dict.txt"
    fairseq("preprocess", "--only-source", "--testpref", folder / "test.txt", "--srcdict", dictionary, "--destdir", folder / "bin")
    arguments = ["--path", folder / "transformer_lm" / "lm.pt", "--sample-break-mode", "eos", "--gen-subset", "test", "--cpu"]
    result = fairseq("eval-lm", folder / "bin", *arguments, "--batch-size", 8)
    loss = float(result.stdout.split("Loss (base 2): ")[1].split(",")[0])
    scores = load_fairseq_lm(folder / "transformer_lm" / "lm.pt").score([line.split() for line in text])
    events = sum(len(score.log_probs) for score in scores)
    assert -sum(score.total for score in scores) / events / math.log(2) == pytest.approx(loss, abs=1e-4)


def of_gpt2(scorer: TokenScorer, text: str, start: str = "<|endoftext|>", end: str = "<|endoftext|>") -> float:
    """ln p of a text and its end by transformers' own loss."""
    ids = torch.tensor([scorer.lm.tokenizer(start + text + end)["input_ids"]])
    with torch.inference_mode():
        return -scorer.lm.model(input_ids=ids, labels=ids).loss.item() * (ids.numel() - 1)


def test_the_cache_has_the_name_that_this_transformers_gives_it(folder, monkeypatch):
    """transformers 5.24 calls it ``cache`` in arguments and results, and warns of the name it had."""
    from transformers import GPT2LMHeadModel, GPT2Model

    expected = [score.total for score in load_huggingface_lm(folder / "gpt2").score(SENTENCES)]
    missing, used = object(), []
    for model in (GPT2Model, GPT2LMHeadModel):
        own = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"

        def forward(self, *args, cache=missing, before=model.forward, own=own, **options):
            if cache is missing:
                return before(self, *args, **options)
            used.append(cache)
            found = before(self, *args, **{own: cache}, **options)
            found.cache = getattr(found, own)
            return found

        monkeypatch.setattr(model, "forward", forward)
    assert [score.total for score in load_huggingface_lm(folder / "gpt2").score(SENTENCES)] == expected
    assert any(cache is not None for cache in used)


def test_transformers_gives_the_same_scores(folder):
    scorer = load_huggingface_lm(folder / "gpt2")
    for words, score in zip(SENTENCES, scorer.score(SENTENCES), strict=True):
        assert score.total == pytest.approx(of_gpt2(scorer, " ".join(words)), abs=1e-4)
        assert not any(score.oov)
    assert any("begins with '<|endoftext|>', each sentence ends with '<|endoftext|>'" in note for note in scorer.notes())
    later = scorer.after([["the", "dog"], ["a", "cat"]])
    before = "the dog<|endoftext|>a cat<|endoftext|>"
    for words, score in zip(SENTENCES, later.score(SENTENCES), strict=True):
        expected = of_gpt2(scorer, before + " ".join(words)) - of_gpt2(scorer, before, end="")
        assert score.total == pytest.approx(expected, abs=1e-4)


def test_pieces_are_summed_to_words_and_the_end_can_be_left_out(folder):
    whole = load_huggingface_lm(folder / "gpt2")
    without = load_huggingface_lm(folder / "gpt2", frame=SentenceFrame(end="none"))
    words = ["the", "zebra", "sat"]
    [score], [cut] = whole.score([words]), without.score([words])
    sums = [of_gpt2(whole, " ".join(words[:count]), end="") for count in (0, 1, 2, 3)]
    expected = [after - before for before, after in zip([0.0, *sums[1:]], sums[1:], strict=False)]
    assert score.log_probs[:3] == pytest.approx(expected, abs=1e-4)
    assert cut.log_probs == pytest.approx((*score.log_probs[:3], 0.0), abs=1e-5)
    assert without.signature()["sentence end"] == "not scored"
    assert "the sentence end is not scored" in without.notes()[0]
    later, before = without.after([["the", "dog"], ["a", "cat"]]), "the dog\na cat\n"  # else dog and a would be one word
    expected = of_gpt2(whole, before + " ".join(words), end="") - of_gpt2(whole, before, end="")
    assert later.score([words])[0].total == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("prompt", "read"),
    [("a dog sat", "a dog sat\n"), ("a dog\n", "a dog\n"), ("a: ", "a: \n"), ("the mat\n<|endoftext|>", "the mat\n<|endoftext|>")],
)
def test_a_prompt_is_read_before_each_sentence_and_before_a_context(folder, prompt, read):
    plain, prompted = (load_huggingface_lm(folder / "gpt2", frame=SentenceFrame(prompt=text)) for text in (None, prompt))
    history = [["the", "dog"], ["a", "cat"]]
    for before, lm in ((read, prompted), (f"{read}the dog<|endoftext|>a cat<|endoftext|>", prompted.after(history))):
        for words, score in zip(SENTENCES, lm.score(SENTENCES), strict=True):
            expected = of_gpt2(plain, before + " ".join(words)) - of_gpt2(plain, before, end="")
            assert score.total == pytest.approx(expected, abs=1e-4)
            assert len(score.log_probs) == len(words) + 1
    assert prompted.signature() == plain.signature() | {"prompt": prompt}
    tokens = len(plain.lm.tokenizer(read)["input_ids"])
    first = " ".join(read.split())
    assert prompted.notes()[0].startswith(f"lm: each sentence begins with '<|endoftext|>' and a prompt of {tokens} tokens, '{first}'")


def test_a_prompt_that_leaves_no_room_is_one_line(folder):
    path = folder / "gpt2"
    with pytest.raises(InputError, match=r"gpt2: the prompt has 81 tokens, and the LM reads at most 64 with a sentence: shorten it"):
        load_huggingface_lm(path, frame=SentenceFrame(prompt="the " * 40))
    prompted = load_huggingface_lm(path, "gpt", frame=SentenceFrame(prompt="the " * 25))
    before = len(prompted.lm.start)
    found = f"has 19 tokens, with those before it {19 + before}, the LM reads at most 64"
    with pytest.raises(InputError, match=f"gpt: the sentence 'the .*' {found}"):
        prompted.score([["the"] * 10])
    [later], [alone] = (lm.score([["the"] * 2]) for lm in (prompted.after([["the"] * 8]), prompted))  # no room for the history
    assert later.log_probs == pytest.approx(alone.log_probs, abs=1e-5)


@pytest.mark.parametrize("special", [True, False])
def test_no_line_end_follows_an_added_token_that_is_special(tmp_path, special):
    from transformers import AddedToken, AutoTokenizer

    folder = write_gpt2(tmp_path / "gpt2", vocab_size=300)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([AddedToken("[/INST]", special=special)], special_tokens=special)
    tokenizer.save_pretrained(folder)
    start = load_huggingface_lm(folder, frame=SentenceFrame(prompt="the cat [/INST]")).lm.start
    expected = tokenizer("the cat [/INST]" + ("" if special else "\n"))["input_ids"]
    assert start[1:] == tuple(expected)


def test_the_line_end_is_that_of_the_whole_text(tmp_path):
    """Tokenizers join a full stop and a line end, and set a space before a text of its own."""
    folder = write_gpt2(tmp_path / "gpt2", words=["cat.\n", "the"])
    starts = [load_huggingface_lm(folder, frame=SentenceFrame(prompt=prompt)).lm.start for prompt in ("the cat.", "the cat.\n")]
    assert starts[0] == starts[1]


def test_prompt_and_context_may_fill_all_positions(folder):
    for words in range(1, 28):
        lm = load_huggingface_lm(folder / "gpt2", frame=SentenceFrame(prompt="the " * words))
        later = lm.after([["a", "cat"], ["the", "dog"], ["the", "mat"]])
        assert later.score([[]])[0].total < 0


def test_a_prompt_is_read_once(folder, monkeypatch):
    lm = load_huggingface_lm(folder / "gpt2", frame=SentenceFrame(prompt="the dog sat"))
    others = [load_huggingface_lm(folder / "gpt2", frame=SentenceFrame(prompt="the dog sat")) for _ in range(3)]
    histories = [[["a", "cat"]], [["the", "mat"], ["a"]], []]
    expected = [other.after(history).score(SENTENCES) for other, history in zip(others, histories, strict=True)]
    read: list[tuple[int, ...]] = []
    before = lm.lm.read
    monkeypatch.setattr(lm.lm, "read", lambda tokens, state=None: read.append(tuple(tokens)) or before(tokens, state))
    for history, scores in zip(histories, expected, strict=True):
        for found, score in zip(lm.after(history).score(SENTENCES), scores, strict=True):
            assert found.log_probs == pytest.approx(score.log_probs, abs=1e-5)
    assert read.count(lm.lm.start) == 1


def test_a_prompt_goes_through_commands_and_the_configuration(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_arpa(tmp_path / "lm.arpa", WORDS)
    Path("text").write_text("the cat sat\n")
    lists = [{"input": [f"the cat {one}", f"the cat {other}"], "output": f"the cat {one}"} for one, other in (("sat", "on"), ("ran", "a"))]
    Path("dev.json").write_text(json.dumps(lists))
    lms = ["--lm", f"gpt={folder}/gpt2", "--kenlm", "lm.arpa"]
    prompt = "a cat = 'a' dog\nthe \"mat\""
    scored = run("score", "text", *lms, "--prompt", prompt)
    assert "gpt: each sentence begins with '<|endoftext|>' and a prompt of" in scored.stderr
    by_hand = load_huggingface_lm(folder / "gpt2", frame=SentenceFrame(prompt=prompt)).score([["the", "cat", "sat"]])[0].total
    assert float(scored.stdout.splitlines()[1].split("\t")[2]) == pytest.approx(by_hand, abs=1e-4)
    run("tune", "dev.json", *lms, "--prompt", f"gpt={prompt}", "--folds", 0, "--strength", 1)
    assert [lm.prompt for lm in attlm.run_config("attlm.toml").lms] == [prompt, None]
    rescored = run("rescore", "dev.json", "-o", "out.json")
    assert "and a prompt of" in rescored.stderr
    assert "causal LM of Hugging Face" in refused("score", "text", "--kenlm", "lm.arpa", "--prompt", "a cat")
    assert "for causal LMs of Hugging Face alone" in refused("score", "text", "--lm", f"{folder}/lstm_lm/lm.pt", "--prompt", "lm=a cat")
    assert "prompt is ' ', expected a text" in refused("score", "text", *lms, "--prompt", " ")
    assert r"prompt is 'caf\udce9', expected a text in UTF-8" in refused("score", "text", *lms, "--prompt", "caf\udce9")


def test_a_masked_lm_masks_each_token_and_those_after_it_in_its_word(folder):
    scorer = load_masked_lm(write_bert(folder / "bert"), "bert")
    words = ["the", "zoo", "cat"]
    [score] = scorer.score([words])
    ids = scorer.tokenizer("the zoo cat")["input_ids"]  # [CLS] the z ##o ##o cat [SEP]
    mask = scorer.tokenizer.mask_token_id
    values = []
    for place, last in ((1, 1), (2, 4), (3, 4), (4, 4), (5, 5)):
        masked = [mask if place <= number <= last else token for number, token in enumerate(ids)]
        with torch.inference_mode():
            values.append(scorer.model(input_ids=torch.tensor([masked])).logits[0, place].log_softmax(-1)[ids[place]].item())
    assert score.log_probs == pytest.approx((values[0], sum(values[1:4]), values[4], 0.0), abs=1e-4)
    assert lm_kind(folder / "bert") == "masked"
    with pytest.raises(InputError, match="bert is a masked LM"):
        MixtureScorer([scorer], [1.0])


def test_the_advice_for_written_text(folder, monkeypatch):
    scorer = load_huggingface_lm(folder / "gpt2", "gpt")
    liked = {"THE CAT SAT": -30.0, "the cat sat": -10.0, "The cat sat": -4.0}

    def score(sentences):
        return [SentenceScore((liked.get(" ".join(words), -20.0),), (False,) * len(words)) for words in sentences]

    monkeypatch.setattr(scorer, "score", score)
    expected = "with --text lowercase,truecase:MODEL the text would be more probable, by 8.67 nats per word"
    assert advise_written_text(scorer, [["THE", "CAT", "SAT"]]) == expected
    assert advise_written_text(scorer, [["The", "cat", "sat"]]) is None
    assert advise_written_text(scorer, []) is None


def test_a_token_belongs_to_the_word_in_which_it_ends():
    offsets = [(0, 3), (3, 5), (5, 7), (7, 9)]  # "the ab cd": a token that begins with the space, one that spans two words
    found = encoded(["the", "ab", "cd"], [7, 8, 9, 3], offsets, 3)
    assert found.lengths == (1, 1, 2)
    assert found.unknown == (False, False, False, True)
    assert encoded([], [], [], None).lengths == ()


def test_bfloat16_states_its_deviation(folder):
    low = load_huggingface_lm(folder / "gpt2", "low", compute=DeviceConfig(precision="bfloat16"))
    exact = load_huggingface_lm(folder / "gpt2").score(SENTENCES)
    for score, other in zip(low.score(SENTENCES), exact, strict=True):
        assert score.total == pytest.approx(other.total, abs=0.5)
    assert low.deviation.largest > 0
    assert low.after([["the", "cat"]]).deviation is low.deviation  # it is measured once
    assert "differs from float32" in low.notes()[0]


def test_little_memory_gives_the_same_scores(folder, monkeypatch):
    scorer = load_huggingface_lm(folder / "gpt2")
    sentences = [[WORDS[(number * step) % 8] for step in range(1, 6)] for number in range(40)]
    expected = scorer.score(sentences)
    monkeypatch.setattr(TokenScorer, "_memory", lambda *_: StepMemory(fixed=scorer.compute.memory // 8, token=1, node=1))
    blocks = []
    monkeypatch.setattr(TokenScorer, "_of_block", lambda *args, real=TokenScorer._of_block: blocks.append(1) or real(*args))
    for score, other in zip(scorer.score(sentences), expected, strict=True):
        assert score.log_probs == pytest.approx(other.log_probs, abs=1e-5)
    assert len(blocks) > 3


@pytest.mark.parametrize(("kind", "padding", "most"), [("Bert", 0, 64), ("Roberta", 0, 63), ("Roberta", 1, 62)])
def test_a_masked_lm_refuses_what_it_cannot_read(folder, kind, padding, most):
    """RoBERTa numbers positions from the padding's index + 1."""
    scorer = load_masked_lm(write_bert(folder / f"{kind}{padding}", kind=kind, padding=padding), "m")
    assert scorer.score([["the"] * (most - 2)])[0].total < 0
    with pytest.raises(InputError, match=f"a sentence has {most - 1} tokens, with others {most + 1}, the LM reads at most {most}"):
        scorer.score([["the"] * (most - 1)])


def test_the_advice_leaves_out_what_the_lm_cannot_read(folder):
    """With a capital, a sentence of the most tokens has one more."""
    scorer = load_huggingface_lm(folder / "gpt2", "gpt")
    the, capital = (len(scorer.lm.tokenizer(text)["input_ids"]) for text in ("the", "The"))
    words = ["the"] * 60
    while words:
        try:
            scorer.score([words])
            break
        except InputError:
            words.pop()
    assert capital > the
    with pytest.raises(InputError, match="reads at most 64"):
        scorer.score([["The", *words[1:]], ["The", *words]])
    assert scorer.notes()


def test_a_sentence_that_is_too_long_is_one_line(folder):
    scorer = load_huggingface_lm(folder / "gpt2", "gpt")
    with pytest.raises(InputError, match=r"gpt: the sentence '.* \.\.' has 139 tokens, the LM reads at most 64"):
        scorer.score([["the"] * 70])
    sentence = ["the"] * 6  # 11 tokens and an end; of a history half the positions are kept, two of these
    [long], [short] = (scorer.after([sentence] * count).score([["a"]]) for count in (4, 2))
    assert long.log_probs == pytest.approx(short.log_probs, abs=1e-5)
    alone = ["the"] * 25  # 49 tokens: there is room for one sentence of the history
    [long], [short] = (scorer.after([sentence] * count).score([alone]) for count in (4, 1))
    assert long.log_probs == pytest.approx(short.log_probs, abs=1e-5)
    masked = load_masked_lm(write_bert(folder / "short"), "bert")
    alone = ["the"] * 60
    [long], [short] = (masked.after(history).score([alone]) for history in ([["the", "cat"], ["a"]], [["a"]]))
    assert long.log_probs == pytest.approx(short.log_probs, abs=1e-5) != masked.score([alone])[0].log_probs


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_a_long_neighbour_takes_no_history_from_a_sentence(folder, kind):
    """It is after fewer sentences itself."""
    path = folder / "gpt2" if kind == "gpt2" else write_bert(folder / "neighbours")
    scorer = (load_huggingface_lm if kind == "gpt2" else load_masked_lm)(path, "lm")
    later = scorer.after([["the", "cat"], ["a", "dog", "ran"], ["a", "mat"]])
    long = ["the"] * (25 if kind == "gpt2" else 56)
    sentences = [["the", "cat"], long, ["the"], long[:-2]]
    alone = [later.score([sentence])[0] for sentence in sentences]
    for found, expected in zip(later.score(sentences), alone, strict=True):
        assert found.log_probs == pytest.approx(expected.log_probs, abs=1e-5)
    assert alone[0].log_probs != pytest.approx(scorer.score(sentences[:1])[0].log_probs, abs=1e-3)
    assert alone[1].log_probs != pytest.approx(scorer.score([long])[0].log_probs, abs=1e-4)


def test_special_tokens_and_half_a_surrogate_pair_in_a_text_are_words(folder):
    scorer = load_huggingface_lm(folder / "gpt2")
    tokenizer = scorer.lm.tokenizer
    [encoded, plain] = scorer.lm.encode([["the", "<|endoftext|>", "cat"], ["the", "cat"]])
    assert tokenizer.eos_token_id not in encoded.tokens
    assert tokenizer.decode(encoded.tokens) == "the <|endoftext|> cat"
    assert encoded.tokens[: encoded.lengths[0]] == plain.tokens[: plain.lengths[0]]
    tokenizer.unk_token = "<|endoftext|>"  # as that of GPT-2 has it
    tokenizer.add_special_tokens({"additional_special_tokens": ["<laugh>"]})
    [own, other] = encode_words(tokenizer, [["<laugh>", "cat"], ["cat", "<|endoftext|>"]])
    assert own.lengths[0] == 1
    assert (tokenizer.eos_token_id in other.tokens, any(other.unknown)) == (False, False)
    masked = load_masked_lm(write_bert(folder / "special"), "bert")
    [encoded] = encode_words(masked.tokenizer, [["the", "[UNK]", "[MASK]"]])
    assert {encoded.unknown[0], all(encoded.unknown[1 : 1 + encoded.lengths[1]])} == {False, True}
    [words] = masked.score([["the", "[MASK]", "cat"]])
    assert masked.tokenizer.mask_token_id not in encode_words(masked.tokenizer, [["the", "[MASK]", "cat"]])[0].tokens
    assert len(words.log_probs) == 4
    for lm in (scorer, masked):
        found, other = lm.score([["the", "\ud83d", "cat"], ["the", "\ufffd", "cat"]])
        assert found.log_probs == other.log_probs


def test_a_conversation_that_begins_with_silence_is_scored(folder):
    scorer = load_huggingface_lm(folder / "gpt2", frame=SentenceFrame(end="none"))
    scorer.lm.between = ()  # of a tokenizer that leaves line ends out
    [later], [start] = scorer.after([[]]).score([["the", "cat"]]), scorer.score([["the", "cat"]])
    assert later.log_probs == pytest.approx(start.log_probs, abs=1e-6)


def test_every_kind_is_recognised_by_content(folder, tmp_path):
    own = write_checkpoint(tmp_path / "own" / "lm.pt", WORDS)
    arpa = write_arpa(tmp_path / "lm.with.any.name", WORDS)
    kinds = {own: "attlm", arpa: "kenlm", folder / "gpt2": "huggingface", folder / "lstm_lm" / "lm.pt": "fairseq"}
    assert {path: lm_kind(path) for path in kinds} == kinds
    assert LMSpec.of_files("x", [str(arpa)]) == LMSpec("x", kenlm=arpa)
    (tmp_path / "text").write_text("hello\n")
    with pytest.raises(InputError, match=r"found a file that begins with b'hello.*expected a checkpoint"):
        lm_kind(tmp_path / "text")
    (tmp_path / "empty.pt").write_bytes(b"")
    with pytest.raises(InputError, match=r"the file is empty; expected a checkpoint"):
        lm_kind(tmp_path / "empty.pt")
    (tmp_path / "bin.lm").write_bytes(b"SRILM_BINARY_NGRAM_002\n\0\1")
    with pytest.raises(InputError, match=r"is a binary LM of SRILM: .*`ngram -lm bin\.lm -write-lm lm\.arpa`"):
        lm_kind(tmp_path / "bin.lm")
    with pytest.raises(InputError, match="no such file"):
        lm_kind(tmp_path / "none.pt")
    with pytest.raises(InputError, match="causal LMs of Hugging Face alone"):
        load_lm_files([arpa], frame=SentenceFrame(end="none"))


def test_every_kind_goes_through_the_commands(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_arpa(tmp_path / "lm.arpa", WORDS)
    lists = [
        {"input": ["the cat sad on", "the cat sat on"], "output": "the cat sat on", "am": [-1.0, -1.5]},
        {"input": ["a dog ran", "a mat ran"], "output": "a dog ran", "am": [-2.0, -1.0]},
    ]
    Path("dev.json").write_text(json.dumps(lists))
    Path("text").write_text("the cat sat\na dog ran on the mat\n")
    lms = ["--lm", f"gpt={folder}/gpt2", "--lm", f"fair={folder}/lstm_lm/lm.pt", "--lm", "ngram=lm.arpa"]
    weights = [option for name in ("gpt", "fair", "ngram") for option in ("--weight", f"{name}=1")]
    result = run("rescore", "dev.json", *lms, *weights, "-o", "out.json")
    assert "gpt: each sentence begins with '<|endoftext|>'" in result.stderr
    by_hand = LMSpec.of_files("gpt", [f"{folder}/gpt2"]).load(DeviceConfig()).score([["the", "cat", "sat", "on"]])[0].total
    written = json.loads(Path("out.json").read_text())[0]
    assert written["gpt_score"][written["input"].index("the cat sat on")] == pytest.approx(by_hand, abs=1e-4)
    ended = run("score", "text", *lms, "--sentence-end", "none")
    assert "gpt: each sentence begins with '<|endoftext|>', the sentence end is not scored" in ended.stderr
    total = sum(float(line.split("\t")[2]) for line in ended.stdout.splitlines()[1:])
    ppl = run("ppl", "text", "--lm", f"gpt={folder}/gpt2", "--sentence-end", "none").stdout.splitlines()[1].split("\t")
    assert float(ppl[1]) == pytest.approx(math.exp(-total / 9), rel=1e-3)  # of the nine words
    assert ppl[1] == ppl[-1]
    assert "gpt does not score the sentence end" in refused("mix", "text", *lms, "--sentence-end", "none", "-o", "x.toml")
    cached = ("--unigram-cache", "gpt=100:0.1:1", "--context", "all")
    assert "gpt does not score the sentence end" in refused("score", "text", *lms, "--sentence-end", "none", *cached)
    begun = run("score", "text", *lms, "--sentence-start", "gpt=a")
    assert "gpt: each sentence begins with 'a', each sentence ends with '<|endoftext|>'" in begun.stderr
    assert "there is no LM of Hugging Face" in refused("score", "text", "--lm", "lm.arpa", "--sentence-start", "a")
    run("mix", "text", *lms, "--oov", "spread:100", "-o", "attlm.toml")
    assert "gpt2" in Path("attlm.toml").read_text()
    run("ppl", "text", "--config", "attlm.toml")


def test_an_unknown_word_costs_what_the_policy_says(folder):
    spec = LMSpec("lm", checkpoints=(folder / "transformer_lm" / "lm.pt",), oov=OOVPolicy("penalty", -7.0))
    assert with_policy(spec.load(DeviceConfig()), spec.oov).score([["zebra"]])[0].log_probs[0] == -7.0


class Touch:
    """Pickled, it would write a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def code_beside(folder: Path, mark: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "modeling.Config", "AutoModelForCausalLM": "modeling.Model"}
    config["model_type"] = "unheard_of"
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "modeling.py").write_text(f"from pathlib import Path\nPath({str(mark)!r}).touch()\nclass Config: pass\nclass Model: pass\n")


def pickled_weights(folder: Path, mark: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Touch(mark)))


def no_tokenizer(folder: Path, mark: Path) -> None:
    (folder / "tokenizer.json").unlink()


def fewer_weights(folder: Path, mark: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"n_layer": 3}))


def cut_short(folder: Path, mark: Path) -> None:
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])


def not_finite(folder: Path, mark: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    weights["transformer.wte.weight"][0, 0] = math.nan
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def masked(folder: Path, mark: Path) -> None:
    shutil.rmtree(folder)
    write_bert(folder)


HOSTILE = {
    code_beside: "cannot be loaded by transformers",
    pickled_weights: r"weights are pickled \(pytorch_model.bin\), which could run code",
    no_tokenizer: "tokenizer",
    fewer_weights: "its weights lack",
    cut_short: "cannot be loaded by transformers",
    not_finite: "no finite numbers",
    masked: r"BertForMaskedLM, not a causal LM; load_masked_lm",
}


@pytest.mark.parametrize("damage", HOSTILE, ids=lambda damage: damage.__name__)
def test_hostile_folders_are_refused_in_one_line_and_run_nothing(folder, tmp_path, damage):
    shutil.copytree(folder / "gpt2", tmp_path / "lm")
    mark = tmp_path / "mark"
    damage(tmp_path / "lm", mark)
    with pytest.raises(InputError, match=HOSTILE[damage]) as refusal:
        load_huggingface_lm(tmp_path / "lm")
    assert "\n" not in str(refusal.value)
    assert not mark.exists()


def test_a_name_that_is_neither_file_nor_cached_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("a\n")
    assert "no model of this name in Hugging Face's local cache" in refused("ppl", "text", "--lm", "no-such/model")


@pytest.mark.parametrize("version", ["4.57.6", "5.4.0.dev0"])
def test_a_transformers_that_would_run_code_of_the_hub_is_refused(folder, monkeypatch, version):
    monkeypatch.setattr("transformers.__version__", version)
    with pytest.raises(InputError, match=rf"gpt2: transformers {version} can run code .* install transformers 5\.5 or later"):
        load_huggingface_lm(folder / "gpt2")


def test_options_that_fairseq_would_run_are_refused(folder, tmp_path):
    content = torch.load(folder / "fconv_lm" / "lm.pt", weights_only=True)
    content["cfg"]["model"]["decoder_layers"] = f"__import__('pathlib').Path({str(tmp_path / 'mark')!r}).touch()"
    shutil.copy(folder / "fconv_lm" / "dict.txt", tmp_path)
    torch.save(content, tmp_path / "lm.pt")
    with pytest.raises(InputError, match="which fairseq could run"):
        load_fairseq_lm(tmp_path / "lm.pt")
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("write", [write_checkpoint, lambda path, words: write_fairseq_lm(path, "lstm_lm")])
def test_an_architecture_that_fairseq_does_not_have_either(tmp_path, write):
    path = write(tmp_path / "lm.pt", WORDS)
    content = torch.load(path, weights_only=True)
    content["cfg"]["model"]["_name"] = "future_lm"
    torch.save(content, path)
    Path(tmp_path / "text").write_text("the cat\n")
    found = refused("ppl", str(tmp_path / "text"), "--lm", str(path))
    assert "architecture 'future_lm' is none of this package's: attentive_lstm_lm, " in found
    assert "install the version of attlm that has it" in found


def test_fairseq_that_is_not_installed_is_one_line(folder, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"need fairseq: pip install 'attlm-fairseq\[train\]'"):
        load_fairseq_lm(folder / "lstm_lm" / "lm.pt")


PROGRAM = """
import logging, sys, warnings
import attlm_fairseq as attlm
before = (sys.excepthook, logging.root.level, list(logging.root.handlers))
attlm.load_lm(sys.argv[1])
assert "fairseq" in sys.modules
assert before == (sys.excepthook, logging.root.level, list(logging.root.handlers))
assert not any(message and "hydra" in message.pattern for _, message, *_ in warnings.filters)
"""


def test_a_program_keeps_its_ways_when_a_fairseq_lm_is_loaded(tmp_path):
    write_fairseq_lm(tmp_path / "lm.pt", "lstm_lm")
    found = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path / "lm.pt"], capture_output=True, text=True, check=True)
    assert found.stderr == ""
