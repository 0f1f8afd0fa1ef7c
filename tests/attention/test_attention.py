"""What `attlm attention` shows: the weights against the equations, distances by hand, and the files as their readers see them."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from lm_files import write_checkpoint
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from small_models import OF_WORDS, VARIANTS, WITHOUT_READ, WITHOUT_WEIGHTS, V, layers_of, make_model, reference_log_probs

import attlm_fairseq as attlm
from attlm_cli.main import main
from attlm_fairseq.attention import figures, show
from attlm_fairseq.attention.contributions import require_lstm
from attlm_fairseq.attention.distance import DistanceProfile
from attlm_fairseq.attention.figures import heat_map
from attlm_fairseq.attention.highlight import highlights, printable
from attlm_fairseq.attention.weights import BATCH_TOKENS, SentenceAttention, sentence_attention
from attlm_fairseq.checkpoints.reading import TrainedModel
from attlm_fairseq.checkpoints.vocabulary import EOS, SPECIAL_SYMBOLS, Vocabulary
from attlm_fairseq.errors import InputError

WINDOW = 4  # of the key-value-predict variants
WITH_WEIGHTS = [variant for variant in VARIANTS if variant not in WITHOUT_WEIGHTS]
VOCABULARY = Vocabulary([*SPECIAL_SYMBOLS, *(f"w{index}" for index in range(4, V))])


def trained(variant: str) -> TrainedModel:
    return TrainedModel(make_model(variant), VOCABULARY, Path("lm.pt"), variant, "0")


def expected_weights(variant: str, alpha: list[list[float]]) -> tuple[np.ndarray, np.ndarray]:
    """From what the loops over the equations attend to at each position: weights and memory, by the columns h_0, <s>, w_1, .. w_n."""
    weights = np.zeros((len(alpha), len(alpha) + 1))
    in_memory = np.zeros_like(weights, dtype=bool)
    for t, of_position in enumerate(alpha):
        if variant == "averaging":  # h_0 .. h_{t+1}, the current one included
            slots = dict.fromkeys(range(t + 2), 1 / (t + 2))
        elif variant.startswith("selection") or variant == "LSTMN":  # h_0 .. h_t
            slots = dict(enumerate(of_position))
        else:  # the states after the inputs 0 .. t - 1, of which a window holds the last; or the words 0 .. t of a window
            window = WINDOW if VARIANTS[variant][0] == "kvp_lstm_lm" else of_words(variant, t + 1) - 1
            window += VARIANTS[variant][1].get("attention_skip", 0)
            slots = {1 + place: value for place, value in enumerate(of_position) if place >= t - window}  # the current one too, where read
        for column, value in slots.items():
            weights[t, column], in_memory[t, column] = value, True
    return weights, in_memory


def of_words(variant: str, most: int) -> int:
    """The window of a memory of words; others hold all states."""
    options = VARIANTS[variant][1]
    return options.get("rm_window") or options.get("pointer_window") or most


@pytest.mark.parametrize("variant", WITH_WEIGHTS)
def test_every_column_is_the_state_that_the_equations_read(variant):
    lm = trained(variant)
    words = [f"w{4 + (3 * place) % 11}" for place in range(9)] + ["unheard-of"]
    [found] = sentence_attention(lm, [words], with_log_probs=True)
    tokens = [EOS, *lm.vocabulary.ids(words)]
    with torch.no_grad():
        log_probs, alpha = reference_log_probs(lm.model, tokens, variant)
    weights, in_memory = expected_weights(variant, [[float(value) for value in of_position] for of_position in alpha])
    np.testing.assert_allclose(found.weights, weights, atol=1e-6)
    np.testing.assert_array_equal(found.in_memory, in_memory)
    np.testing.assert_allclose(found.log_probs, log_probs[range(11), [*tokens[1:], EOS]].tolist(), atol=1e-5)
    assert found.inputs == ("h_0", "<s>", *words)
    assert found.predicted == (*words, "</s>")
    assert found.oov == (False,) * 9 + (True,)
    reads_initial = variant in ("averaging", "LSTMN") or variant.startswith("selection")
    newest = 11 - (lm.model.reader.columns or lm.model.recurrence.columns).newest
    assert found.of == ("word" if variant in OF_WORDS else "state")
    assert found.columns == list(range(0 if reads_initial else 1, newest + 1))


def test_a_sentence_reads_the_same_among_others():
    lm = trained("combined")
    many = [[f"w{4 + (place * length) % 15}" for place in range(length)] for length in (0, 1, 200, 3, 3, 90, 700, 2, 17) for _ in range(3)]
    assert sum(map(len, many)) > BATCH_TOKENS  # more than one batch
    for words, found in zip(many, sentence_attention(lm, many), strict=True):
        assert found.words == tuple(words)
        [alone] = sentence_attention(lm, [words])
        np.testing.assert_allclose(found.weights, alone.weights, atol=1e-6)
        np.testing.assert_array_equal(found.in_memory, alone.in_memory)


def test_the_columns_of_every_reader_with_weights_are_known():
    for variant in VARIANTS:
        model = make_model(variant)
        _, read = model(torch.full((1, 3), EOS), need_read=True)
        assert (read is not None) == (model.reader.columns is not None) == (variant not in WITHOUT_READ), variant
    for variant in WITHOUT_WEIGHTS:
        with pytest.raises(InputError, match=f"{variant} has no attention weights"):
            list(sentence_attention(trained(variant), [["w5"]]))


def attention(rows: list[list[float | None]]) -> SentenceAttention:
    """From weights by hand, None where there is no such state in memory."""
    array = np.array(rows, dtype=float)
    words = tuple(f"w{place}" for place in range(1, len(rows)))
    return SentenceAttention(words, (False,) * len(words), np.nan_to_num(array), ~np.isnan(array))


TWO_WORDS = attention([[None, None, None, None], [None, 1.0, None, None], [None, 0.25, 0.75, None]])
ONE_WORD_WITH_INITIAL = attention([[1.0, None, None], [0.6, 0.4, None]])
CURRENT_TOO = attention([[0.5, 0.5, None], [1 / 3, 1 / 3, 1 / 3]])


def test_attention_by_distance_by_hand():
    profile = DistanceProfile()
    for sentence in (TWO_WORDS, ONE_WORD_WITH_INITIAL, CURRENT_TOO):
        profile.add(sentence)
    assert (profile.sentences, profile.predictions, profile.without_memory) == (3, 7, 1)
    rows = {row.distance: row for row in profile.rows()}
    assert list(rows) == [0, 1, 2, None]
    got = {distance: (row.predictions, row.mean, row.equal, row.share) for distance, row in rows.items()}
    assert got[0] == pytest.approx((2, (1 / 2 + 1 / 3) / 2, (1 / 2 + 1 / 3) / 2, (1 / 2 + 1 / 3) / 6))
    assert got[1] == pytest.approx((4, (1 + 0.75 + 0.4 + 1 / 3) / 4, (1 + 1 / 2 + 1 / 2 + 1 / 3) / 4, (1 + 0.75 + 0.4 + 1 / 3) / 6))
    assert got[2] == pytest.approx((1, 0.25, 0.5, 0.25 / 6))  # the sentences too short for it do not count
    assert got[None] == pytest.approx((4, (1 + 0.6 + 1 / 2 + 1 / 3) / 4, (1 + 1 / 2 + 1 / 2 + 1 / 3) / 4, (1 + 0.6 + 1 / 2 + 1 / 3) / 6))
    assert sum(row.share for row in rows.values()) == pytest.approx(1)
    assert profile.start_share == pytest.approx((1 + 0.25 + 0.4 + 1 / 2 + 1 / 3) / 6)


def test_shares_of_rows_that_sum_to_less_than_1_sum_to_1():
    """A pointer reads a part of each row; the softmax has the rest."""
    profile = DistanceProfile()
    profile.add(attention([[None, None, None, None], [None, 0.5, None, None], [None, 0.125, 0.375, None]]))
    assert {row.distance: row.share for row in profile.rows()} == pytest.approx({1: 0.875, 2: 0.125})
    assert profile.start_share == pytest.approx(0.625)
    empty = DistanceProfile()
    empty.add(attention([[None, None], [0.0, None]]))
    assert [row.share for row in empty.rows()] == [0.0]


def test_highlights_by_hand():
    [first, second] = highlights(TWO_WORDS, 0.75)
    assert (first.row, first.columns, first.highlighted) == (1, (1, 2), (True, False))
    assert (second.row, second.columns, second.highlighted) == (2, (1, 2, 3), (False, True, False))
    assert [found.row for found in highlights(ONE_WORD_WITH_INITIAL, 0.7)] == [0]
    assert list(highlights(CURRENT_TOO, 0.51)) == []


@pytest.mark.parametrize(("words", "values"), [(1, True), (12, True), (40, True), (63, True), (200, False)])
def test_the_heat_map_is_legible(words, values):
    """Labels do not run into each other, values lie inside their cells, the picture can be opened."""
    size = words + 1
    weights = np.tril(np.ones((size, size + 1)), 0) / np.arange(1, size + 1)[:, None]
    long_words = tuple(("Donaudampfschifffahrtsgesellschaft", "a")[place % 2] for place in range(words))
    in_memory = np.tril(np.ones((size, size + 1), dtype=bool), 0)
    figure = heat_map(SentenceAttention(long_words, (False,) * words, weights, in_memory), "lm")
    figure.set_dpi(120)
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    axes = figure.axes[0]
    for labels, low, high in ((axes.get_xticklabels(), "x0", "x1"), (axes.get_yticklabels(), "y0", "y1")):
        boxes = sorted((label.get_window_extent(renderer) for label in labels), key=lambda box: getattr(box, low))
        assert all(getattr(before, high) <= getattr(after, low) + 1 for before, after in pairwise(boxes))
        assert all(label.get_fontsize() >= 4.5 for label in labels)
    cell = axes.get_window_extent().height / size
    assert bool(axes.texts) == values
    for text in axes.texts[::7]:
        box = text.get_window_extent(renderer)
        assert max(box.width, box.height) < cell - 2
    assert max(figure.get_size_inches()) * 120 <= 5000


WORDS = ["the", "cat", "sat", "on", "mat", "<b>&\"'", "$x$", "我", "喜欢"]
HARD = "the cat <b>&\"' $x$ 我 喜欢 \x1b[31mred zebra"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_checkpoint(tmp_path / "lm.pt", WORDS)
    (tmp_path / "text").write_text("the cat sat\n\non the mat the cat sat on\nthe zebra\n")
    return tmp_path


def run(*arguments: object, code: int = 0, stdin: str | bytes | None = None):
    result = CliRunner().invoke(main, ["attention", *map(str, arguments)], input=stdin)
    assert result.exit_code == code, (result.output, result.exception)
    return result


class Cells(HTMLParser):
    """The body cells of the first table and all text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tables = 0
        self.text: list[str] = []
        self.marks: list[str] = []
        self.mark = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tables += tag == "table"
        self.mark = self.mark or tag == "mark"
        if tag == "tr" and self.tables == 1:
            self.rows.append([])
        if tag == "td" and self.tables == 1:
            self.rows[-1].append(dict(attributes).get("title", "").rpartition(": ")[2])

    def handle_endtag(self, tag):
        self.mark = self.mark and tag != "mark"

    def handle_data(self, data):
        self.text.append(data)
        if self.mark:
            self.marks.append(data)


def test_all_forms_say_the_same(folder):
    outputs = [f"-o{name}" for name in ("a.png", "a.svg", "a.pdf", "a.html", "a.json", "a.tsv")]
    run(HARD, "--lm", "lm.pt", *outputs)
    header, *rows = (line.split("\t") for line in (folder / "a.tsv").read_text().splitlines())
    words = HARD.split()
    assert header == ["predicted", "oov", "log_prob", "<s>", *words[:-1]]  # the state after the last word is never in memory
    assert [row[0] for row in rows] == [*words, "</s>"]
    assert [row[1] for row in rows] == ["0"] * 6 + ["1", "1", "0"]
    for t, row in enumerate(rows):
        assert [cell != "" for cell in row[3:]] == [column < t for column in range(len(words))]
        assert sum(float(cell or 0) for cell in row[3:]) == pytest.approx(min(t, 1), abs=1e-5)
    record = json.loads((folder / "a.json").read_text())
    assert record["inputs"] == header[3:]
    assert [[f"{value:.6f}" if value is not None else "" for value in row] for row in record["weights"]] == [row[3:] for row in rows]
    assert [f"{value:.6f}" for value in record["log_probs"]] == [row[2] for row in rows]
    assert record["lm"]["architecture"] == "attentive_lstm_lm"
    score = CliRunner().invoke(main, ["score", "-", "--lm", "lm.pt", "--words", "--no-header"], input=HARD + "\n")
    assert [float(line.split("\t")[2]) for line in score.stdout.splitlines()] == pytest.approx(record["log_probs"], abs=2e-5)

    page = Cells((folder / "a.html").read_text())
    assert [[cell != "" for cell in row] for row in page.rows[1:]] == [[cell != "" for cell in row[3:]] for row in rows]
    in_page, in_table = ([float(cell) for row in shown for cell in row if cell] for shown in (page.rows[1:], [row[3:] for row in rows]))
    assert in_page == pytest.approx(in_table, abs=6e-5)  # four decimals
    assert {"<b>&\"'", "$x$", "喜欢", "\ufffd[31mred"} <= set(page.text)
    assert not re.search(r"https?:|<script|\x1b", (folder / "a.html").read_text())  # nothing from elsewhere, nothing that runs
    ElementTree.parse(folder / "a.svg")
    assert (folder / "a.png").read_bytes().startswith(b"\x89PNG")
    first = {path.name: path.read_bytes() for path in folder.glob("a.*")}
    run(HARD, "--lm", "lm.pt", *outputs)
    assert {path.name: path.read_bytes() for path in folder.glob("a.*")} == first


def test_without_an_output_the_table_is_printed(folder):
    run("the cat sat", "--lm", "lm.pt", "-o", "a.tsv")
    assert run("the cat sat", "--lm", "lm.pt").stdout == (folder / "a.tsv").read_text()
    assert run("THE Cat sat", "--lm", "lm.pt", "--text", "lowercase").stdout == (folder / "a.tsv").read_text()


def test_highlighted_words_in_lines_and_in_the_page(folder):
    shown = run("the cat zebra", "--lm", "lm.pt", "--highlight", 0.5, "-o", "a.html").stdout.splitlines()
    record = json.loads(run("the cat zebra", "--lm", "lm.pt", "-o", "a.json") and (folder / "a.json").read_text())
    labels = ["<s>", "the", "cat", "<unk:zebra>"]
    expected = []
    for row, predicted in zip(record["weights"], [*labels[1:], "</s>"], strict=True):
        current = record["weights"].index(row)
        text = [
            f"[{word} {weight:.2f}]" if weight is not None and weight >= 0.5 else word
            for word, weight in zip(labels[: current + 1], [*row, None], strict=False)
        ]
        if any(word.startswith("[") for word in text):
            expected.append(" ".join([*text, "->", predicted]))
    assert shown == expected
    assert shown[0] == "[<s> 1.00] the -> cat"
    assert len(Cells((folder / "a.html").read_text()).marks) == sum(line.count("[") for line in shown)


def test_a_text_by_distance(folder):
    lines = ["the cat sat", "", "on the mat the cat sat on", "the zebra"]
    table = run("--file", "text", "--lm", "lm.pt", "-o", "d.png", "-o", "d.html", "-o", "d.json", "-o", "d.jsonl", "-o", "-").stdout
    header, *rows = (line.split("\t") for line in table.splitlines())
    assert header == ["distance", "predictions", "mean", "equal", "share"]
    records = [json.loads(line) for line in (folder / "d.jsonl").read_text().splitlines()]
    assert [(record["line"], record["words"]) for record in records] == [(1 + place, line.split()) for place, line in enumerate(lines)]
    for distance, predictions, mean, _, _ in rows:
        back = int(distance)
        weights = [row[t - back] for record in records for t, row in enumerate(record["weights"]) if t >= back]
        assert int(predictions) == len(weights)
        assert float(mean) == pytest.approx(sum(weights) / len(weights), abs=2e-6)
    assert [row[0] for row in rows] == ["1", "2", "3", "4", "5", "6", "7"]
    record = json.loads((folder / "d.json").read_text())
    assert (record["sentences"], record["predictions"], record["without_memory"]) == (4, 16, 4)
    assert [f"{row['mean']:.6f}" for row in record["distances"]] == [row[2] for row in rows]
    page = Cells((folder / "d.html").read_text())
    assert page.tables == 1 + 3  # distances, and a heat map of each line with words
    assert "Line 4" in page.text
    assert (folder / "d.png").read_bytes().startswith(b"\x89PNG")

    run("--file", "-", "--lm", "lm.pt", "-o", "e.html", "--sentences", 1, stdin=(folder / "text").read_bytes())
    assert Cells((folder / "e.html").read_text()).tables == 2
    assert "the first 1 of 4 sentences" in (folder / "e.html").read_text()
    lines = run("--file", "text", "--lm", "lm.pt", "--highlight", 1).stdout.splitlines()
    assert lines == ["1\t[<s> 1.00] the -> cat", "3\t[<s> 1.00] on -> the", "4\t[<s> 1.00] the -> <unk:zebra>"]


@pytest.mark.parametrize("family", ["averaging_lstm_lm", "amsrn_lm", "kvp_lstm_lm"])
def test_every_family_with_weights_can_be_shown(folder, family):
    write_checkpoint(folder / "other.pt", WORDS, _name=family)
    header = run("the cat sat on the mat", "--lm", "other.pt", "-o", "-", "-o", "a.png", "-o", "a.html").stdout.splitlines()[0].split("\t")
    assert ("h_0" in header) == (family != "kvp_lstm_lm")
    assert ("mat" in header) == (family == "averaging_lstm_lm")  # the state after the last word, current when the end is predicted
    distances = [line.split("\t")[0] for line in run("--file", "text", "--lm", "other.pt").stdout.splitlines()[1:]]
    assert (
        distances
        == {
            "averaging_lstm_lm": [*"01234567", "h_0"],
            "amsrn_lm": [*"1234567", "h_0"],
            "kvp_lstm_lm": [*"12345"],  # the window
        }[family]
    )


def refused(*arguments: object, stdin: str | bytes | None = None) -> str:
    [line] = run(*arguments, code=2, stdin=stdin).stderr.splitlines()
    assert line.startswith("attlm: error: ")
    return line


def test_bad_input_is_one_line_and_leaves_nothing(folder):
    (folder / "lm.arpa").write_text("\\data\\\nngram 1=0\n")
    before = sorted(folder.iterdir())
    lm = ["--lm", "lm.pt"]
    assert "a sentence in quotes, or --file" in refused(*lm)
    assert "a sentence in quotes, or --file" in refused("the cat", "--file", "text", *lm)
    assert "a sentence in quotes, or --file" in refused("-", *lm)
    assert "no words" in refused(" \t", *lm)
    assert "a.gif: cannot be written as '.gif'" in refused("the cat", *lm, "-o", "a.gif", "-o", "a.png")
    assert "cannot be written as" in refused("the cat", *lm, "-o", "a.jsonl")
    assert "nowhere/a.png: the output cannot be written" in refused("the cat", *lm, "-o", "nowhere/a.png")
    assert "text: the output would overwrite the input" in refused("--file", "text", *lm, "-o", "text")
    assert "nosuch: cannot be read" in refused("--file", "nosuch", *lm, "-o", "a.png")
    assert "the file is empty" in refused("--file", "-", *lm, "-o", "a.png", stdin="")
    assert "<stdin>:2: not UTF-8" in refused("--file", "-", *lm, "-o", "a.png", "-o", "a.jsonl", stdin=b"the\ncaf\xe9\n")
    assert "not UTF-8" in refused("caf\udce9", *lm, "-o", "a.png")
    assert "no neural LM" in refused("the cat")
    assert "an n-gram LM (kenlm) has no attention weights" in refused("the cat", "--kenlm", "lm.arpa")
    assert "2 are given" in refused("the cat", "--lm", "lm.pt:lm.pt")
    assert "2 are given" in run("the cat", "--lm", "lm.pt", "--lm", "lm.pt", code=2).stderr  # after a note on their names
    (folder / "lists").write_text('{"id": "u", "hyps": [{"text": "the cat", "scores": {}}]}\n')
    (folder / "pages").mkdir()
    before = sorted(folder.iterdir())
    assert "holds n-best lists (jsonl)" in refused("--file", "lists", *lm)
    assert "pages: the output is a folder: name a file" in refused("--file", "text", *lm, "-o", "pages")
    assert "--sentences is for the sentences of --file" in refused("the cat", *lm, "--sentences", "5")
    assert sorted(folder.iterdir()) == before
    for family in ("plain_lstm_lm", "ngram_rnn_lm"):
        write_checkpoint(folder / "none.pt", WORDS, _name=family)
        assert f"architecture {family} has no attention weights" in refused("the cat", "--lm", "none.pt", "-o", "a.png")
        assert f"architecture {family} has no attention weights" in refused("--file", "text", "--lm", "none.pt")
    assert "2.0 is not in the range" in run("the cat", *lm, "--highlight", "2", code=2).stderr


def test_a_sentence_may_be_longer_than_a_file_name(folder):
    assert run("\u732b" * 100, "--lm", "lm.pt").exit_code == 0


def test_joiners_are_shown_and_control_characters_are_not():
    persian = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    assert printable(persian) == persian
    assert printable("a\x1b[2J\u202e\u2028\ufffe\udce9b") == "a\ufffd[2J\ufffd\ufffd\ufffd\ufffdb"


def test_standard_output_may_be_a_notebooks(folder):
    """It has no buffer of bytes."""
    with contextlib.redirect_stdout(io.StringIO()) as told:
        attlm.show_attention("the cat", {"lm": folder / "lm.pt"})
    assert "cat" in told.getvalue()


def test_characters_that_no_font_has_are_told(folder):
    note = run("the 我 喜欢", "--lm", "lm.pt", "-o", "a.png", "-o", "a.svg", "-o", "a.html").stderr
    assert "the fonts lack 喜我欢 (3 characters, drawn as boxes)" in note
    assert note.count("\n") == 1
    assert not run("the 我 喜欢", "--lm", "lm.pt", "-o", "a.html").stderr
    assert not run("the café Ελλάδα кошка", "--lm", "lm.pt", "-o", "a.png").stderr.startswith("note")


def test_scripts_that_matplotlib_cannot_write_are_told_in_one_line():
    told = [
        "Glyph 25105 (x) missing from font(s) DejaVu Sans.",
        *["Matplotlib currently does not support Arabic natively."] * 2,
        "deprecated",
    ]
    missing, unshaped = figures.notes_of(told)
    assert "the fonts lack 我 (1 characters" in missing
    assert unshaped == "note: Matplotlib currently does not support Arabic natively; write .html, which browsers show as it should be"


def test_no_file_is_written_if_a_picture_cannot_be_drawn(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    before = sorted(folder.iterdir())
    told = run("--file", "text", "--lm", "lm.pt", "-o", "a.jsonl", "-o", "b.png", code=2).stderr
    assert "the Python package matplotlib is missing" in told
    assert sorted(folder.iterdir()) == before


def test_heads_of_all_scripts_read_the_same_way(folder):
    """Upright characters, as Chinese has them in vertical text, would stand on their heads after the turn."""
    run(HARD, "--lm", "lm.pt", "-o", "a.html")
    [style] = re.findall(r"thead th \{(.*?rotate.*?)\}", (folder / "a.html").read_text())
    assert "text-orientation: sideways" in style


def test_the_fonts_of_the_users_matplotlibrc_are_used(folder, monkeypatch):
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    pen.lineTo((0, 900))
    pen.lineTo((900, 0))
    pen.closePath()
    square = pen.glyph()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", "uni6211"])
    builder.setupCharacterMap({ord("我"): "uni6211"})
    builder.setupGlyf({".notdef": TTGlyphPen(None).glyph(), "uni6211": square})
    builder.setupHorizontalMetrics({".notdef": (1000, 0), "uni6211": (1000, 0)})
    builder.setupHorizontalHeader(ascent=900, descent=-100)
    builder.setupNameTable({"familyName": "Just One Glyph", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(folder / "one.ttf")
    run("the 我", "--lm", "lm.pt", "-o", "boxes.svg")
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [*font_manager.fontManager.ttflist])
    font_manager.fontManager.addfont(folder / "one.ttf")
    monkeypatch.setitem(matplotlib.rcParams, "font.family", ["DejaVu Sans", "Just One Glyph"])
    assert not run("the 我", "--lm", "lm.pt", "-o", "drawn.svg").stderr
    assert (folder / "drawn.svg").read_bytes() != (folder / "boxes.svg").read_bytes()
    assert "欢" in run("the 我 欢", "--lm", "lm.pt", "-o", "a.png").stderr


def test_long_lines_are_read_few_at_a_time(monkeypatch):
    monkeypatch.setattr(show, "BLOCK_LINES", 3)
    monkeypatch.setattr(show, "BLOCK_WEIGHTS", 100)
    sentences = [["a"] * length for length in (1, 1, 1, 9, 20, 2, 2)]
    assert [list(map(len, block)) for block in show.blocks(sentences)] == [[1, 1, 1], [9], [20], [2, 2]]


def cells_by_hand(lm: TrainedModel, tokens: list[int]) -> tuple[list[list[np.ndarray]], list[np.ndarray]]:
    """Equation 7 by a loop over the last layer: e_ti of every input i at every position t, and the cells c_t."""
    cells = lm.model.recurrence
    sequence = [lm.model.embedding.weight[token].detach().numpy() for token in tokens]

    def sigmoid(values: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-values))

    for weights in layers_of(cells):
        W, U, b = (weights[name].detach().numpy() for name in ("W_x", "W_h", "b"))
        h, c, states, forgets, written, held = np.zeros(len(U[0])), np.zeros(len(U[0])), [], [], [], []
        for x in sequence:
            i, f, g, o = np.split(W @ x + U @ h + b, 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            states.append(h)
            forgets.append(sigmoid(f))
            written.append(sigmoid(i) * np.tanh(g))
            held.append(c)
        sequence = states
    positions = range(len(tokens))
    return [[np.prod(forgets[i + 1 : t + 1], axis=0) * written[i] for i in range(t + 1)] for t in positions], held


@pytest.mark.parametrize("variant", ["single", "selection tied", "averaging", "combined, smaller top"])
def test_contributions_are_those_of_the_equation(variant):
    lm = trained(variant)
    words = [f"w{4 + (3 * place) % 11}" for place in range(9)]
    [other, found] = sentence_attention(lm, [["w5"], words], with_contributions=True)
    terms, cells = cells_by_hand(lm, [EOS, *lm.vocabulary.ids(words)])
    for t, (of_position, cell) in enumerate(zip(terms, cells, strict=True)):
        np.testing.assert_allclose(sum(of_position), cell, atol=1e-9)
        sizes = np.array([np.abs(term).sum() for term in of_position])
        np.testing.assert_allclose(found.contributions[t, 1 : t + 2], sizes / sizes.sum(), atol=1e-6)
        assert not found.contributions[t, t + 2 :].any()
        assert found.contributions[t, 0] == 0
    assert other.contributions.shape == (2, 3)
    shares = found.of_contributions()
    np.testing.assert_array_equal(shares.weights, found.contributions)
    np.testing.assert_array_equal(shares.in_memory, found.contributions > 0)


def test_only_an_lstm_has_cells_that_inputs_contribute_to(tmp_path):
    with pytest.raises(InputError, match="contributions are computed for plain LSTM layers"):
        require_lstm(TrainedModel(make_model("rnn"), VOCABULARY, Path("lm.pt"), "rnn_lm", "0"))


def with_shares(weights: list[list[float | None]], shares: list[list[float]]) -> SentenceAttention:
    return replace(attention(weights), contributions=np.array(shares))


def test_persistence_by_hand():
    """Two sentences of three words: only the last prediction of each has three states in memory."""
    nothing = [[None] * 5, [None, 1.0, None, None, None], [None, 0.5, 0.5, None, None]]
    some = [[0, 1.0, 0, 0, 0], [0, 0.5, 0.5, 0, 0], [0, 0.2, 0.3, 0.5, 0]]
    profile = DistanceProfile()
    profile.add(with_shares([*nothing, [None, 0.6, 0.3, 0.1, None]], [*some, [0, 0.1, 0.2, 0.3, 0.4]]))
    profile.add(with_shares([*nothing, [None, 0.0, 0.2, 0.8, None]], [*some, [0, 0.0, 0.4, 0.5, 0.1]]))
    found = profile.persistence
    assert found.predictions == 2
    assert found.correlation == pytest.approx((-1 + 1) / 2)
    assert found.attended == pytest.approx((0.6 * 0.1 + 0.3 * 0.2 + 0.1 * 0.3 + 0.2 * 0.4 + 0.8 * 0.5) / 2)
    assert found.expected == pytest.approx(((0.6 + 0.0) * 0.05 + (0.3 + 0.2) * 0.3 + (0.1 + 0.8) * 0.4) / 2)
    rows = {row.distance: row.contribution for row in profile.rows()}
    assert rows[1] == pytest.approx((0.5 + 0.3 + 0.3 + 0.5 + 0.3 + 0.5) / 6)
    assert [row.contribution for row in DistanceProfile().rows()] == []


@pytest.fixture
def two_lms(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    words = [f"w{place}" for place in range(12)]
    write_checkpoint(tmp_path / "lm.pt", words, attention_score="combined")
    write_checkpoint(tmp_path / "other.pt", words, seed=2, _name="plain_lstm_lm")
    (tmp_path / "few").mkdir()
    write_checkpoint(tmp_path / "few" / "few.pt", words[:6])
    lines = [" ".join(f"w{(place * number) % 13}" for place in range(number % 7)) for number in range(40)]
    (tmp_path / "text").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_an_lm_that_gives_a_sentence_end_probability_0_is_not_compared_with(two_lms):
    unigrams = "".join(f"-1\t{word}\n" for word in ["<unk>", *(f"w{place}" for place in range(12))])
    header = "\\data\\\nngram 1=15\nngram 2=1\n\n\\1-grams:\n-99\t<s>\t0\n-inf\t</s>\n"
    (two_lms / "zero.arpa").write_text(f"{header}{unigrams}\n\\2-grams:\n-1\t<s> w0\n\n\\end\\\n")
    said = refused("--file", "text", "--lm", "lm.pt", "--against", "zero.arpa", "-o", "x.json")
    assert re.search(r"line \d+: ln p is -[\d.]+, under the other LM -inf: expected finite numbers", said)
    assert not (two_lms / "x.json").exists()


def test_the_sentences_that_improved_most_over_another_lm(two_lms):
    result = CliRunner().invoke(
        main, ["attention", "--file", "text", "--lm", "lm.pt", "--against", "other.pt", "--top", "3", "-o", "page.html", "-o", "x.json"]
    )
    assert result.exit_code == 0, result.output
    header, *rows = (line.split("\t") for line in result.stdout.splitlines())
    lines = (two_lms / "text").read_text().splitlines()
    scores = [attlm.load_lm(name).score([line.split() for line in lines]) for name in ("lm.pt", "other.pt")]
    gains = [(one.total - other.total) / len(one.log_probs) for one, other in zip(*scores, strict=True)]
    best = sorted(range(len(lines)), key=lambda place: -gains[place])[:3]
    assert header == ["line", "gain", "ppl", "ppl_against", "sentence"]
    assert [(int(row[0]), row[4]) for row in rows] == [(place + 1, lines[place]) for place in best]
    assert [float(row[1]) for row in rows] == pytest.approx([gains[place] for place in best], abs=1e-3)
    for row, place in zip(rows, best, strict=True):
        assert float(row[3]) == pytest.approx(math.exp(-scores[1][place].total / len(scores[1][place].log_probs)), rel=1e-3)
    page = (two_lms / "page.html").read_text()
    assert re.findall(r"<h2>Line (\d+): perplexity", page) == [row[0] for row in rows]
    assert "Below: the most improved 3 of 40 sentences" in page
    improved = json.loads((two_lms / "x.json").read_text())["improved"]
    assert [found["line"] for found in improved] == [place + 1 for place in best]


def test_sentences_with_words_that_one_lm_alone_knows_are_not_compared(two_lms):
    result = CliRunner().invoke(
        main, ["attention", "--file", "text", "--lm", "lm.pt", "--against", "few/few.pt", "--top", "40", "--highlight", "0.4"]
    )
    assert result.exit_code == 0, result.output
    lines = (two_lms / "text").read_text().splitlines()
    alike = [number for number, line in enumerate(lines, 1) if not {"w6", "w7", "w8", "w9", "w10", "w11"} & set(line.split())]
    printed = [line.split("\t") for line in result.stdout.splitlines()[1:]]
    assert sorted(int(fields[0]) for fields in printed if len(fields) == 5) == alike
    assert {int(fields[0]) for fields in printed if len(fields) == 2} <= set(alike)
    assert any(len(fields) == 2 for fields in printed)
    assert f"{len(lines) - len(alike)} sentences are not compared" in result.stderr
    refused = CliRunner().invoke(main, ["attention", "w1 w2", "--lm", "lm.pt", "--against", "other.pt"])
    assert refused.exit_code == 2
    assert "another LM to compare with is for a text: give --file TEXT" in refused.stderr


def test_settings_of_conversations_do_not_hide_the_attention(folder):
    """``attlm fit`` writes caches into the configuration, which other commands then read."""
    settings = 'neural_cache = "50:0.5:0.1"\nunigram_cache = "50:0.1:1"\ncontext_sentences = 3\n'
    (folder / "attlm.toml").write_text(f'[lm.n]\ncheckpoint = "lm.pt"\n{settings}[context]\nconversations = "all"\n')
    assert run("the cat sat", "--config", "attlm.toml").stdout == run("the cat sat", "--lm", "lm.pt").stdout


def test_contributions_are_written_next_to_the_weights(two_lms):
    files = ["page.html", "x.json", "x.tsv"]
    outputs = [argument for name in files for argument in ("-o", name)]
    assert CliRunner().invoke(main, ["attention", "w1 w2 w3", "--lm", "lm.pt", "--contributions", *outputs]).exit_code == 0
    record = json.loads((two_lms / "x.json").read_text())
    assert [len(row) for row in record["contributions"]] == [1, 2, 3, 4]
    assert [sum(row) for row in record["contributions"]] == pytest.approx([1] * 4, abs=1e-5)
    header, *rows = ((line.split("\t")) for line in (two_lms / "x.tsv").read_text().splitlines())
    assert header[-4:] == ["cell: <s>", "cell: w1", "cell: w2", "cell: w3"]
    assert [row[-4:].count("") for row in rows] == [3, 2, 1, 0]
    assert (two_lms / "page.html").read_text().count('<table class="heat">') == 2
    result = CliRunner().invoke(main, ["attention", "--file", "text", "--lm", "lm.pt", "--contributions", *outputs, "-o", "x.svg"])
    assert re.search(r"an attended input has [\d.]+% of the LSTM's cell, the average input at its place and distance", result.stderr)
    found = json.loads((two_lms / "x.json").read_text())
    assert set(found["persistence"]) == {"predictions", "correlation", "attended", "expected"}
    assert all(0 < row["contribution"] <= 1 for row in found["distances"])
    assert (two_lms / "x.tsv").read_text().splitlines()[0].endswith("\tshare\tcontribution")
