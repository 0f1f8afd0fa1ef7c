"""The quickstart's corpus maker and noisy channel, against enumeration and full scans."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import itertools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from attlm_fairseq.errors import InputError

FOLDER = Path(__file__).parents[2] / "examples" / "quickstart"


def load(name):
    spec = importlib.util.spec_from_file_location(f"quickstart_{name}", FOLDER / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


corpus = load("corpus")
noisy_channel = load("noisy_channel")
Channel, Decoder = noisy_channel.Channel, noisy_channel.Decoder


def test_the_readme_trains_as_run_sh_does():
    found = [
        re.search(r"fairseq-train data .*? --log-format simple", (FOLDER / name).read_text(), re.DOTALL)[0]
        for name in ("README.md", "run.sh")
    ]
    in_readme, in_script = (command.replace("\\\n", " ").split() for command in found)
    assert in_readme == in_script


# --- corpus ---


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("Don't use `str.format()` here.", "don't use str format here"),
        ("It is a built-in, added in version 3.10.", "it is a built in added in version three point one zero"),
        ('Return "__init__" (for use/reuse).', "return init for use reuse"),
        ("The window\u2019s \u201csize\u201d -- in pixels \u2013 is kept.", "the window's size in pixels is kept"),
        ("It is the same as os.path.join().", "it is the same as os path join"),
    ],
)
def test_sentences_are_normalised_as_read_aloud(sentence, words):
    assert corpus.normalise(sentence) == words.split()


@pytest.mark.parametrize(
    "sentence",
    [
        "x = y + 1 is the sum.",  # a formula
        "The array a[i] is read.",  # brackets
        "The call f(x, y) is made.",
        "Übung is a word.",  # beyond ASCII
        "Two words.",  # too short
        "red, green, blue, yellow.",  # a list of names
        "the " * 61,  # too long
        "a_b c_d e_f g_h i_j is.",  # names, hardly a plain word
        ">>> print the result of it",
    ],
)
def test_what_is_not_prose_is_left_out(sentence):
    assert corpus.normalise(sentence) is None


def test_paragraphs_of_a_docstring():
    text = """Do the thing
    over two lines.

    Heading
    =======
    - the first item
      goes on
    - the second

    The code is::

        x = 1

        y = 2

    After it.

    >>> doctest(1)
    'result'

    The end.
    """
    assert list(corpus.paragraphs(inspect.cleandoc(text))) == [
        "Do the thing over two lines.",
        "Heading =======",
        "the first item goes on",
        "the second",
        "The code is::",
        "After it.",
        "The end.",
    ]


def test_sentences_end_at_full_stops_and_not_at_abbreviations():
    text = "Use it with care.  It may fail, e.g. When empty. (See the docs of it.) heading without a stop\n\nAnother heading of the text"
    assert list(corpus.sentences(text)) == [
        "use it with care",
        "it may fail for example when empty",
        "see the docs of it heading without a stop",
    ]


def test_splits_share_no_sentence_and_no_eight_words():
    shared = "one two three four five six seven eight"
    kept, left_out = corpus.distinct(
        {
            "train": [f"a {shared} b", "the same sentence", "the same sentence", f"c {shared}"],
            "dev": [f"d {shared}", "the same sentence", "two three four five six seven eight"],
            "test": ["two three four five six seven eight", "two three four five six seven eight nine"],
        }
    )
    assert kept == {
        "train": [f"a {shared} b", "the same sentence", f"c {shared}"],
        "dev": ["two three four five six seven eight"],
        "test": ["two three four five six seven eight nine"],
    }
    assert left_out == {"repeated": 3, "overlapping": 1}


@pytest.fixture
def library(tmp_path):
    """A small standard library."""
    topic = 'The \\"{0}\\" statement number {0} does what its name says.\\n'
    topics = ", ".join(f"'t{number}': '" + topic.replace('\\"', '"').format(number) + "'" for number in range(40))
    files = {
        "pydoc_data/topics.py": f"topics = {{{topics}}}",
        "module.py": """'This is the module of it.'
class C:
    'This is the class of it.'
    if True:
        def f():
            'This is a function in it.'
""",
        "package/__init__.py": '"""This is the package of it."""',
        "broken.py": '"""This is broken by its end."""\n)',
        "raises.py": '"""This must not be imported at all."""\nraise RuntimeError',
        "test/test_it.py": '"""This is a test of it."""',
        "site-packages/other.py": '"""This is not in the library."""',
    }
    for name, text in files.items():
        path = tmp_path / "library" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "library"


def test_documents_are_topics_and_the_docstrings_of_the_library_alone(library):
    documents = dict(corpus.documents(library))
    assert [name for name in documents if name.startswith("module")] == ["module module", "module package.__init__", "module raises"]
    assert documents["module module"] == ["This is the module of it.", "This is the class of it.", "This is a function in it."]
    assert len(documents) == 43


def test_corpus_is_split_by_document_and_the_same_every_time(library, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(corpus.sysconfig, "get_path", lambda name: str(library))
    corpus.main(tmp_path / "once")
    corpus.main(tmp_path / "again")
    texts = {split: (tmp_path / "once" / f"{split}.txt").read_text() for split in corpus.SPLITS}
    assert texts == {split: (tmp_path / "again" / f"{split}.txt").read_text() for split in corpus.SPLITS}
    for split, text in texts.items():
        for number in range(10):
            spelt = f" number {corpus.DIGITS[str(number)]} does"
            assert (spelt in text) == (corpus.split_of(f"topic t{number}") == split)
    assert capsys.readouterr().out.count("train") == 2 * (1 + 2)


def test_a_python_without_topics_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(SystemExit, match=r"topics\.py is missing"):
        corpus.main(tmp_path / "out")


# --- channel ---

CHANNEL = Channel(exchange=0.05, omission=0.1, substitution=0.15, slip=0.08)


def every_outcome(word, channel):
    """All ways through the channel one after the other: {typed: probability}, the empty one left out and made up for."""
    outcomes = {}

    def after_slip(rest, typed, letter, probability):
        for key in letter + noisy_channel.NEIGHBOURS[letter]:
            go_on(rest, typed + key, probability * channel.slip / (1 + len(noisy_channel.NEIGHBOURS[letter])))
        go_on(rest, typed, probability * (1 - channel.slip))

    def go_on(rest, typed, probability):
        if not rest:
            outcomes[typed] = outcomes.get(typed, 0.0) + probability
            return
        letter, neighbours, kept = rest[0], noisy_channel.NEIGHBOURS[rest[0]], 1.0 - channel.omission
        if rest[1:] and rest[1] != letter:
            kept -= channel.exchange
            after_slip(rest[2:], typed + rest[1] + letter, rest[1], probability * channel.exchange)
        after_slip(rest[1:], typed, letter, probability * channel.omission)
        for key in neighbours:
            kept -= channel.substitution / len(neighbours)
            after_slip(rest[1:], typed + key, letter, probability * channel.substitution / len(neighbours))
        after_slip(rest[1:], typed + letter, letter, probability * kept)

    go_on(word, "", 1.0)
    empty = outcomes.pop("")
    return {typed: probability / (1 - empty) for typed, probability in outcomes.items()}


@pytest.mark.parametrize("word", ["a", "'", "aa", "to", "i'", "i'm", "eel"])
def test_channel_sums_over_every_way_and_to_one(word):
    outcomes = every_outcome(word, CHANNEL)
    computed = CHANNEL.log_probability([(word, typed) for typed in outcomes])
    assert computed == pytest.approx([math.log(probability) for probability in outcomes.values()], rel=1e-9)
    assert math.fsum(math.exp(value) for value in computed) == pytest.approx(1.0, abs=1e-9)


def test_what_the_channel_cannot_do_has_probability_zero():
    assert CHANNEL.log_probability([("a", "p"), ("a", "aaa"), ("ab", "bbaa")]).tolist() == [-math.inf] * 3


def test_channel_types_words_as_often_as_it_says():
    random, draws = Random(1), 40_000
    counts = {}
    for _ in range(draws):
        typed = CHANNEL.type_word("to", random)
        counts[typed] = counts.get(typed, 0) + 1
    outcomes = every_outcome("to", CHANNEL)
    assert set(counts) <= set(outcomes)
    frequent = {typed: probability for typed, probability in outcomes.items() if probability * draws > 50}
    assert len(frequent) > 20
    chi_square = sum((counts.get(typed, 0) - draws * p) ** 2 / (draws * p) for typed, p in frequent.items())
    assert chi_square < 2 * len(frequent)


def test_neighbouring_keys_are_mutual():
    assert noisy_channel.NEIGHBOURS["g"] == "bfhtvy"
    assert noisy_channel.NEIGHBOURS["q"] == "aw"
    for key, neighbours in noisy_channel.NEIGHBOURS.items():
        assert key not in neighbours
        assert all(key in noisy_channel.NEIGHBOURS[other] for other in neighbours)


# --- decoder ---

TRAINING = [line.split() for line in ["the cat sat on the mat", "a cat and a dog sat", "there is the other one", "it's the cats' then"]]
TRAINING = [[word.rstrip("'") for word in sentence] for sentence in TRAINING]


def edits(a, b):
    """Optimal string alignment distance by the definition."""
    rows = {(i, j): max(i, j) for i in range(len(a) + 1) for j in range(len(b) + 1) if not (i and j)}
    for i, j in itertools.product(range(1, len(a) + 1), range(1, len(b) + 1)):
        best = min(rows[i - 1, j] + 1, rows[i, j - 1] + 1, rows[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
        if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
            best = min(best, rows[i - 2, j - 2] + 1)
        rows[i, j] = best
    return rows[len(a), len(b)]


def test_near_words_against_a_full_scan():
    decoder = Decoder(TRAINING, CHANNEL)
    random = Random(2)
    typed = ["".join(random.choice("acehinost'") for _ in range(random.randint(1, 6))) for _ in range(200)]
    typed += [CHANNEL.type_word(word, random) for word in decoder.vocabulary for _ in range(5)]
    for word, near in zip(typed, decoder.near(typed), strict=True):
        assert near == [known for known in decoder.vocabulary if edits(word, known) <= 2]


def test_candidates_are_the_best_of_near_words_and_the_word_itself():
    decoder = Decoder(TRAINING, CHANNEL)
    everything = decoder.candidates(["teh", "zzzzzz", "cat"], 1000)
    assert everything[0][0].word == "the"
    assert [candidate.word for candidate in everything[1]] == ["zzzzzz"]
    assert "teh" in [candidate.word for candidate in everything[0]]
    for candidates in everything:
        assert [candidate.total for candidate in candidates] == sorted((candidate.total for candidate in candidates), reverse=True)
        for candidate in candidates:
            assert (candidate.spelling == 0) == (candidate.word in decoder.counts)
    assert decoder.candidates(["teh", "zzzzzz", "cat"], 2) == [candidates[:2] for candidates in everything]


def test_unigram_probabilities_leave_room_for_new_words():
    decoder = Decoder(TRAINING, CHANNEL)
    known = math.fsum(math.exp(decoder.prior(word)[0]) for word in decoder.vocabulary)
    assert known + math.exp(decoder.prior("new")[0]) == pytest.approx(1.0)


def test_spelling_is_a_distribution_over_the_next_letter():
    spelling = noisy_channel.Spelling(["the", "then", "it's"])
    for context in ("   ", "  t", " th", "the", "zzz"):
        assert math.fsum(spelling._letter(context, letter) for letter in noisy_channel.KEYS + " ") == pytest.approx(1.0)
    assert spelling.log_probability("then") > spelling.log_probability("xqzn")


def test_best_combinations_against_enumeration():
    random = Random(3)
    for _ in range(100):
        columns = [
            sorted((random.choice([0, 1, 2.5, 7]) * -random.random() for _ in range(random.randint(1, 4))), reverse=True)
            for _ in range(random.randint(1, 5))
        ]
        everything = list(itertools.product(*(range(len(column)) for column in columns)))
        n = random.randint(1, len(everything) + 3)

        def total(places, columns=columns):
            return math.fsum(column[place] for column, place in zip(columns, places, strict=True))

        best = noisy_channel.best_combinations(columns, n)
        assert len(best) == len(set(best)) == min(n, len(everything))
        assert [total(places) for places in best] == pytest.approx(sorted(map(total, everything), reverse=True)[:n], abs=1e-12)


def test_decoding_finds_the_n_best_sentences():
    decoder = Decoder(TRAINING, CHANNEL)
    typed = ["teh", "cta", "st"]
    columns = decoder.candidates(typed, 10_000)
    totals = sorted((math.fsum(candidate.total for candidate in words) for words in itertools.product(*columns)), reverse=True)
    (decoded,) = decoder.decode([typed], 25)
    assert " ".join(candidate.word for candidate in decoded[0]) == "the cat sat"
    assert [math.fsum(candidate.total for candidate in words) for words in decoded] == pytest.approx(totals[:25])
    assert len({tuple(candidate.word for candidate in words) for words in decoded}) == 25


# --- commands ---


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "train.txt").write_text("".join(" ".join(sentence) + "\n" for sentence in TRAINING))
    (tmp_path / "test.txt").write_text("the cat sat\nthen a dog\n")
    (tmp_path / "test.typed").write_text("teh cat sst\nthen a dgo\n")
    return tmp_path


def test_decode_writes_nbest_lists(texts, capsys):
    noisy_channel.main(["decode", f"{texts}/test.typed", "--train", f"{texts}/train.txt", "--refs", f"{texts}/test.txt", "-n", "5"])
    lists = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(found["id"], found["typed"], found["ref"]) for found in lists] == [
        ("test-0", "teh cat sst", "the cat sat"),
        ("test-1", "then a dgo", "then a dog"),
    ]
    for found in lists:
        assert found["hyps"][0]["text"] == found["ref"]
        totals = [sum(hypothesis["scores"].values()) for hypothesis in found["hyps"]]
        assert len(totals) == 5
        assert totals == pytest.approx(sorted(totals, reverse=True))
    decoder = Decoder(TRAINING, Channel())
    channel, unigram = (
        decoder.channel.log_probability([("the", "teh"), ("cat", "cat"), ("sat", "sst")]).sum(),
        sum(decoder.prior(word)[0] for word in ("the", "cat", "sat")),
    )
    assert lists[0]["hyps"][0]["scores"] == pytest.approx({"channel": channel, "unigram": unigram, "spelling": 0.0}, abs=1e-3)


def test_corrupting_is_seeded(texts, capsys):
    outputs = []
    for seed in ("1", "1", "2"):
        noisy_channel.main(["corrupt", f"{texts}/train.txt", "--seed", seed])
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] != outputs[2]
    assert [len(line.split()) for line in outputs[0].splitlines()] == [len(sentence) for sentence in TRAINING]


@pytest.mark.parametrize(("text", "message"), [("the cat\n\n", ":2: an empty line"), ("the c4t\n", ":1: 'c4t' has other characters")])
def test_unusable_lines_are_named(texts, text, message):
    (texts / "test.typed").write_text(text)
    with pytest.raises(InputError, match=message):
        noisy_channel.main(["decode", f"{texts}/test.typed", "--train", f"{texts}/train.txt"])


def test_references_of_another_length(texts):
    (texts / "test.txt").write_text("the cat sat\n")
    with pytest.raises(InputError, match="1 references for 2 typed sentences"):
        noisy_channel.main(["decode", f"{texts}/test.typed", "--train", f"{texts}/train.txt", "--refs", f"{texts}/test.txt"])


# --- run.sh ---

STAND_IN = """#!/bin/sh
# stands for each program: notes the call, fails or waits where it is asked to, and makes what run.sh looks for afterwards
[ "$1" = -c ] && exec "$PYTHON" "$@"
echo "$(basename "$0") $*" >> "$CALLS"
case "$*" in *"$FAIL_AT"*) echo "what went wrong"; exit 3;; esac
case "$*" in *"$WAIT_AT"*) touch "$CALLS.waits"; sleep 60;; esac
echo "what it found"
touch train.txt && mkdir -p data model
while [ $# -gt 0 ]; do [ "$1" = -o ] && : > "$2"; shift; done
exit 0
"""


@pytest.fixture
def run(tmp_path):
    """Runs a copy of run.sh with stand-ins for the programs; gives its exit status, its output and the calls it made."""
    for name in ("bin/python", "bin/fairseq-preprocess", "bin/fairseq-train", "bin/attlm"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(STAND_IN)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "quick start").mkdir()
    shutil.copy(FOLDER / "run.sh", tmp_path / "quick start")
    shutil.copy(FOLDER.parent / "steps.sh", tmp_path)

    def run(*arguments, fail_at="nowhere", path=f"{tmp_path}/bin:/usr/bin:/bin", wait_at="nowhere", how=None, alone=False):
        """``how``: the signal that the run gets once it waits, ``alone`` or with the programs that it started."""
        calls, waits = tmp_path / "calls", tmp_path / "calls.waits"
        calls.write_text("")
        waits.unlink(missing_ok=True)
        environment = os.environ | {"PATH": path, "CALLS": str(calls), "FAIL_AT": fail_at, "WAIT_AT": wait_at, "PYTHON": sys.executable}
        script = [shutil.which("bash"), f"{tmp_path}/quick start/run.sh", *arguments]
        with (tmp_path / "printed").open("w+") as printed:
            process = subprocess.Popen(
                script, env=environment, cwd="/", stdout=printed, stderr=printed, text=True, start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored in what a script runs in the background
            )  # fmt: skip
            if how is not None:
                while not waits.exists():
                    assert process.poll() is None, (tmp_path / "printed").read_text()
                    time.sleep(0.01)
                (os.kill if alone else os.killpg)(process.pid, how)
            process.wait()
        if alone:
            groups.append(process.pid)
        return process.returncode, (tmp_path / "printed").read_text(), calls.read_text().splitlines()

    groups = []
    yield run
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def test_run_does_each_step_once(run):
    status, output, calls = run()
    assert status == 0
    assert len(calls) == 20  # two for each n-best list
    assert all(call in output for call in calls)  # what is printed is what is run
    assert output.count("what it found") == 3  # perplexities and the two tables
    status, output, calls = run()
    assert (status, calls) == (0, [])
    assert output.count("done before") == 18
    assert len(run("--fresh")[2]) == 20


def test_run_shows_what_failed_and_goes_on_from_there(run):
    status, output, calls = run(fail_at="ngram train.txt")
    assert status == 1
    assert "what went wrong" in output
    assert len(calls) == 4
    status, output, calls = run()
    assert status == 0
    assert calls[0].startswith("attlm ngram")
    assert len(calls) == 17


STEPS = ("--only-source", "--user-dir", "ngram train.txt", "noisy_channel.py corrupt dev", "tune dev.jsonl --kenlm", "eval test.jsonl")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_continues_with_the_step_it_was_in(run, how):
    everything = run()[2]
    run("--fresh", fail_at="corpus.py")
    for place in STEPS:
        status, output, calls = run(wait_at=place, how=how)
        assert status == (130 if how == signal.SIGINT else -how)
        assert place in calls[-1]
        assert ("interrupted; the same command continues with step" in output) == (how == signal.SIGINT)
        assert "Traceback" not in output
    status, _, calls = run()
    assert status == 0
    assert calls == everything[everything.index(next(call for call in everything if STEPS[-1] in call)) :]


def test_an_interrupted_run_from_the_beginning_says_how_to_continue(run):
    _, output, calls = run("--fresh", wait_at="ngram train.txt", how=signal.SIGINT)
    assert f"interrupted; the same command without --fresh continues with step {len(calls)}" in output


def test_what_was_made_before_an_interruption_of_older_outputs_is_made_again(run, tmp_path):
    """Killed between the end of one step and the beginning of the next, whose mark is from before."""
    run()
    work = tmp_path / "quick start" / "work"
    before = {path.name: path.read_text() for path in (work / "done").iterdir()}
    (work / "lm.arpa").unlink()
    run(fail_at="corrupt dev")
    left = {path.name for path in (work / "done").iterdir()}
    assert left == {"corpus", "binarise", "train", "ngram"} < before.keys()


def test_a_run_refuses_a_folder_in_which_programs_of_a_killed_one_work(run):
    status, _, _ = run(wait_at="ngram train.txt", how=signal.SIGKILL, alone=True)
    assert status == -signal.SIGKILL
    for arguments in ([], ["--fresh"]):
        status, output, calls = run(*arguments)
        assert (status, calls) == (2, [])
        assert re.fullmatch(r"run.sh: .*/work is in use: .* wait for it or end it\n", output)


def test_run_repeats_whatever_follows_a_step_that_is_gone(run, tmp_path):
    run()
    (tmp_path / "quick start" / "work" / "lm.arpa").unlink()
    assert run()[2][0].startswith("attlm ngram")


def test_run_says_what_is_missing_and_how_it_is_called(run):
    status, output, calls = run(path="/usr/bin:/bin")
    assert (status, calls) == (2, [])
    assert "make install" in output
    assert run("--frehs")[0] == 2
