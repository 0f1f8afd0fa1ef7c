"""Lists as scripts and decoders save them: tuned and rescored by the command line, without a line of Python between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import folder, run  # noqa: F401 - a fixture

TEXTS = [["the cat sad on the mat", "the cat sat on the mat"], ["a dock ran", "a dog ran"], ["a mad", "a mat"]] * 4
REFERENCES = ["the cat sat on the mat", "a dog ran", "a mat"] * 4
SCORES = [[-0.2, -0.3]] * 12
IDS = [f"u{i}" for i in range(12)]


def lines(values):
    return "".join(json.dumps(value) + "\n" for value in values)


def segment(text, score):
    return {"text": f" {text}", "segments": [{"id": 0, "text": f" {text}", "avg_logprob": score, "tokens": [1, 2]}], "language": "en"}


ROWS = [(*row,) for row in zip(IDS, TEXTS, SCORES, REFERENCES, strict=True)]
SHAPES = {
    "generate": json.dumps({"texts": TEXTS, "sequences_scores": SCORES}),
    "whisper results by id": json.dumps({name: [segment(*one) for one in zip(t, s, strict=True)] for name, t, s, _ in ROWS}),
    "objects by id": json.dumps({n: [{"text": a, "avg_logprob": b} for a, b in zip(t, s, strict=True)] for n, t, s, _ in ROWS}),
    "manifest": lines(
        {"audio_filepath": n, "duration": 1.0, "text": r, "pred_text": t[0], "beams": [*zip(t, s, strict=True)]} for n, t, s, r in ROWS
    ),
    "reference and nbest": json.dumps([{"reference": r, "nbest": t} for _, t, _, r in ROWS]),
    "lists of lists": json.dumps(TEXTS),
    "pyctcdecode": json.dumps([[[a, None, [["a", [0, 3]]], b - 1, b] for a, b in zip(t, s, strict=True)] for _, t, s, _ in ROWS]),
    "csv": "id,hyp,score,ref\n" + "".join(f"{n},{a},{b},{r}\n" for n, t, s, r in ROWS for a, b in zip(t, s, strict=True)),
    "icefall": "".join(f"{n}:\tref={r.split()}\n" + "".join(f"{n}:\thyp={a.split()}\n" for a in t) for n, t, _, r in ROWS),
}
WITHOUT_REFERENCES = ("generate", "whisper results by id", "objects by id", "lists of lists", "pyctcdecode")


@pytest.mark.parametrize("shape", SHAPES)
def test_from_the_decoders_file_to_better_texts(folder, shape):  # noqa: F811
    Path("nbest").write_text(SHAPES[shape])
    Path("refs").write_text("\n".join(REFERENCES) + "\n")
    refs = ["--refs", "refs"] if shape in WITHOUT_REFERENCES else []
    run("tune", "nbest", *refs, "--kenlm", "lm.arpa", "--folds", 0, "--strength", "1")
    result = run("rescore", "nbest", "-o", "out")
    assert "12 changed" in result.stderr
    assert [line.strip() for line in run("rescore", "nbest", "--to", "1best").stdout.splitlines()] == REFERENCES
    run("convert", "out", "-o", "best", "--to", "1best")
    best = [line.strip() for line in Path("best").read_text().splitlines()]  # Whisper's texts begin with a space
    assert best == REFERENCES  # what was written is read again, in the new order
