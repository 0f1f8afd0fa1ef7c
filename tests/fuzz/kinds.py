"""The kinds of input, each a function of a seeded generator that raises nothing but InputError, or ends in an AssertionError: a failure.

A kind keeps the files that it spoils in ``place``, a folder of its own, where the case is found after a failure. It returns how many
processes it killed, None if killing is not its business.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import torch
from damage import spoiled
from killed_runs import kills, resume_file
from lm_files import OPTIONS, write_checkpoint
from nbest_samples import ALL_SAMPLES
from pickle_programs import Programs, write_checkpoint_file
from samples import QUESTIONS, TABLE, WORDS, ngram_model

from attlm_fairseq.checkpoints.reading import load_model
from attlm_fairseq.checkpoints.vocabulary import Vocabulary
from attlm_fairseq.cloze.questions import read_questions
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.nbest.formats import open_nbest, write_nbest
from attlm_fairseq.nbest.reference_files import read_references
from attlm_fairseq.nbest.references import attach_references
from attlm_fairseq.nbest.run.config_file import read_config
from attlm_fairseq.scoring.neural.dynamic_evaluation import Adaptation, adapting_scorer, gradient_scales, weights_digest, write_adaptation
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer
from attlm_fairseq.scoring.ngrams.kenlm import KenLMScorer
from attlm_fairseq.text.pipeline import parse_steps
from attlm_fairseq.verbs.cloze import answer_cloze
from attlm_fairseq.verbs.export import export_model

LINES = [["the", "cat"], [], ["a", "xyz", "ran"], ["<s>", "mat"]]
FAMILIES = ["attentive_lstm_lm", "averaging_lstm_lm", "plain_lstm_lm", "amsrn_lm", "kvp_lstm_lm", "ngram_rnn_lm"]


def lists(random: Random, place: Path) -> None:
    """An n-best list of any format: written back byte for byte, or one line."""
    name, sample = random.choice(ALL_SAMPLES)
    data = spoiled(random, sample.encode())
    packed = gzip.compress(data, mtime=0) if random.random() < 0.1 else data
    source, target = place / "list", place / "out" / "list"
    target.parent.mkdir(exist_ok=True)
    source.write_bytes(packed)
    form, found = open_nbest(str(source), random.choice([name, name, None]))
    read = list(found)
    write_nbest(read, form, str(target))
    assert target.read_bytes() == data, "written back with other bytes"
    for nbest in read:
        for hypothesis in nbest.hypotheses:
            hypothesis.lm_scores = {"lm": -0.5 * hypothesis.rank}
            hypothesis.total = 1.0 * hypothesis.rank
        nbest.hypotheses.reverse()
    write_nbest(read, form, str(target))


def references(random: Random, place: Path) -> None:
    """References for four lists: all of them, or one line."""
    ids = random.choice(["utt-{}", "{}", "a{}b"])
    (place / "list").write_text("".join(f"{ids.format(i)}\ta b\n{ids.format(i)}\tb\n" for i in range(4)))
    lines = [random.choice(["{id} the text", "the text ({id})", "the text", "{id}\tx"]).format(id=ids.format(i)) for i in range(4)]
    (place / "refs").write_bytes(spoiled(random, ("\n".join(lines) + "\n").encode()))
    nbests = list(open_nbest(str(place / "list"), "plain")[1])
    attached = attach_references(nbests, read_references([str(place / "refs")]), random.choice([None, "order", "id"]))
    assert len(attached) == len(nbests)
    assert all(nbest.references for nbest in attached)


CONFIG = """\
[lm.neural]
checkpoint = "lm.pt"
oov = "penalty:-3.5"
text.steps = ["lowercase", "join-subwords:bpe"]
[lm.k]
kenlm = "lm.arpa"
[text]
steps = ["lowercase"]
[weights]
neural = 0.5
k = 0.25
am = -1e-3
[decision]
rule = "mbr-wer"
scale = 0.7
"""


def config(random: Random, place: Path) -> None:
    """attlm.toml."""
    (place / "attlm.toml").write_bytes(spoiled(random, CONFIG.encode()))
    read_config(place / "attlm.toml")


def dictionary(random: Random, place: Path) -> None:
    """dict.txt: the words of its lines, or one line."""
    (place / "dict.txt").write_bytes(spoiled(random, "".join(f"{word} {i}\n" for i, word in enumerate(WORDS)).encode()))
    assert len(Vocabulary.read(place / "dict.txt")) >= 4


@cache
def checkpoint(family: str) -> bytes:
    place = Path(os.environ["FUZZ_SHARED"]) / f"{os.getpid()}"
    return write_checkpoint(place / "lm.pt", WORDS, _name=family).read_bytes()


VALUES = [
    None, True, -1, 0, 1, 2, 3, 1 << 40, 1.5, -0.5, float("nan"), float("inf"), "", "x", "1,2", "7", "9" * 50, "tied", "untied", "adaptive",
    "key-value", [], [1], {}, b"x", (1, 2),
]  # fmt: skip


def options(random: Random, place: Path) -> None:
    """A checkpoint whose options have other values."""
    write_checkpoint(place / "lm.pt", WORDS, _name=random.choice(FAMILIES))
    content = torch.load(place / "lm.pt", weights_only=True)
    parts = [content["cfg"]["model"]] * 4 + [content["cfg"], content, content["model"]]
    for _ in range(random.randint(1, 3)):
        part = random.choice(parts)
        name = random.choice([*part, *OPTIONS])
        if random.random() < 0.2:
            part.pop(name, None)
        else:
            part[name] = random.choice(VALUES)
    torch.save(content, place / "lm.pt")
    score(place / "lm.pt")


def score(path: Path) -> None:
    """Scores that are numbers, or one line."""
    load_model(path)
    for found in NeuralScorer.load([path]).score(LINES):
        assert not any(map(math.isnan, found.log_probs)), "a score of nan"


def pickles(random: Random, place: Path) -> None:
    """Pickles of opcodes, loaded as fairseq's commands and as attlm do."""
    from attlm_fairseq import plugin

    plugin.register()
    path = write_checkpoint_file(place / "program.pt", Programs(random.randrange(1 << 40)).program())

    def load(path: Path) -> object:
        return {"cfg": torch.load(path, weights_only=True)}

    from attlm_fairseq.checkpoints.fairseq_loading import refuse_unusable

    with contextlib.suppress(InputError):
        load_model(path)
    refuse_unusable(load)(str(path))


def checkpoint_bytes(random: Random, place: Path) -> None:
    """Bytes of a checkpoint."""
    (place / "dict.txt").write_text("".join(f"{word} 1\n" for word in WORDS))
    (place / "lm.pt").write_bytes(spoiled(random, checkpoint(random.choice(FAMILIES))))
    score(place / "lm.pt")


def folder(random: Random, place: Path) -> None:
    """An exported folder of which one file is damaged, missing or another."""
    shutil.rmtree(place / "folder", ignore_errors=True)
    (place / "lm.pt").write_bytes(checkpoint("attentive_lstm_lm"))
    (place / "dict.txt").write_text("".join(f"{word} {100 - i}\n" for i, word in enumerate(WORDS)))
    export_model(place / "lm.pt", place / "folder")
    files = sorted((place / "folder").iterdir())
    file = random.choice(files)
    if random.random() < 0.05:
        file.unlink()
    else:
        file.write_bytes(spoiled(random, random.choice([file, file, file, random.choice(files)]).read_bytes()))
    score(place / "folder")


def score_ngrams(path: Path) -> None:
    for found in KenLMScorer(path).score(LINES):
        assert sum(found.log_probs) < 0.01, "ln p above 0"


def arpa(random: Random, place: Path) -> None:
    """An ARPA file: totals of at most 0, or one line."""
    (place / "lm.arpa").write_bytes(spoiled(random, ngram_model("arpa")))
    score_ngrams(place / "lm.arpa")


def kenlm_binary(random: Random, place: Path) -> None:
    """A KenLM binary file. What KenLM does not check inside its tables can end the process: docs/security.md."""
    (place / "lm.bin").write_bytes(spoiled(random, ngram_model(random.choice(["probing", "trie"]))))
    score_ngrams(place / "lm.bin")


def text_files(random: Random, place: Path) -> None:
    """BPE codes and texts."""
    (place / "codes").write_bytes(spoiled(random, b"#version: 0.2\nt h\nth e</w>\nc a\nca t</w>\n"))
    text = spoiled(random, "the cat's @@x ## a\u2581b &amp; \u00e9 3.5 e.g. (x) ...".encode()).decode("utf-8", "replace")
    (place / "text").write_text(text)
    for step in ("bpe:" + str(place / "codes"), "tokenize:en", "remove-punctuation", "unescape", "join-subwords:wordpiece", "unicode:nfkc"):
        assert "\n" not in " ".join(parse_steps([step]).words(text))


def corrections(random: Random, place: Path) -> None:
    """A table of corrections, and what it makes of a list."""
    from attlm_fairseq.nbest.corrections.corrections import Corrections

    (place / "lm.arpa").write_bytes(ngram_model("arpa"))
    (place / "table").write_bytes(spoiled(random, TABLE.encode()))
    (place / "list").write_text("u1\tthe cat sat on the mad\nu1\tthe cat sat on a mat\nu2\tdock ran\n")
    loaded = Corrections.load(place / "table")
    for nbest in open_nbest(str(place / "list"), "plain")[1]:
        expanded = loaded.expand(nbest)
        texts = [hypothesis.text for hypothesis in expanded.hypotheses]
        assert {hypothesis.text for hypothesis in nbest.hypotheses} <= set(texts), "a hypothesis was lost"


def cloze_questions(random: Random, place: Path) -> None:
    """A file of cloze questions: answered and written back, or one line."""
    (place / "lm.arpa").write_bytes(ngram_model("arpa"))
    (place / "questions").write_bytes(spoiled(random, QUESTIONS.encode()))
    answers = answer_cloze(place / "questions", {"k": place / "lm.arpa"})
    for question, values in zip(answers.questions, answers.log_probs["k"], strict=True):
        assert len(values) == len(question.candidates)
        assert all(map(math.isfinite, values))
    (place / "again").write_text("".join(map(str, answers.questions)), newline="")
    again = list(read_questions(TextSource(str(place / "again"), "cloze questions")))
    assert [replace(question, line=None) for question in again] == [replace(question, line=None) for question in answers.questions]


def adaptation(random: Random, place: Path) -> None:
    """A file of `attlm fit --find adaptation`: scores that are numbers, or one line."""
    (place / "dict.txt").write_text("".join(f"{word} 1\n" for word in WORDS))
    (place / "lm.pt").write_bytes(checkpoint("attentive_lstm_lm"))
    lm = NeuralScorer.load([place / "lm.pt"])
    write_adaptation(place / "lm.adaptation", Adaptation(0.001, 0.01, gradient_scales(lm, [LINES]), weights_digest(lm)))
    (place / "lm.adaptation").write_bytes(spoiled(random, (place / "lm.adaptation").read_bytes()))
    for found in adapting_scorer(lm, place / "lm.adaptation").after(LINES).score(LINES):
        assert not any(map(math.isnan, found.log_probs)), "a score of nan"


KINDS: dict[str, Callable[[Random, Path], int | None]] = {
    kind.__name__: kind
    for kind in (
        lists, references, config, dictionary, options, pickles, checkpoint_bytes, folder, arpa, kenlm_binary, text_files, corrections,
        cloze_questions, adaptation,
        kills, resume_file,
    )
}  # fmt: skip
