from __future__ import annotations

import json

import pytest
from cli_runs import run

from attlm_fairseq.nbest.unspaced import fitting_tokenizer


@pytest.mark.parametrize(
    ("texts", "tokenizer"),
    [
        (["\u6211\u4f1a\u53bb\u4e0a\u73ed\u4e86\u3002"], "zh"),
        (["\u6211\u4f1a\u53bb\u4e0a\u73ed\u4e86\uff0c\u4ed6 2019 \u5e74\u4e5f\u4f1a\u53bb\u4e0a\u73ed"], "zh"),
        (["\u6211 \u4f1a \u53bb \u4e0a\u73ed \u4e86 \u3002"], None),  # cut into words already
        (["\u79c1\u306f\u660e\u65e5\u6771\u4eac\u306b\u884c\u304d\u307e\u3059"], "ja-mecab"),
        (["\ub098\ub294 \ub0b4\uc77c \uc11c\uc6b8\uc5d0 \uac04\ub2e4"], None),  # Korean is written with spaces
        (["\ub098\ub294\ub0b4\uc77c\uc11c\uc6b8\uc5d0\uac04\ub2e4"], "char"),
        (["\u0e09\u0e31\u0e19\u0e08\u0e30\u0e44\u0e1b\u0e1e\u0e23\u0e38\u0e48\u0e07\u0e19\u0e35\u0e49"], "char"),
        (["I shall go to \u6771\u4eac tomorrow"], None),
        (["donaudampfschifffahrtsgesellschaft"], None),
        (["", " "], None),
        ([], None),
    ],
)
def test_text_without_spaces_is_recognised(texts, tokenizer):
    assert fitting_tokenizer(texts) == tokenizer


def test_command_hints_at_the_tokenizer(folder):
    lists = [
        {
            "input": ["\u6211\u4f1a\u53bb\u4ed6\u4eec\u5bb6", "\u6211\u4f1a\u53bb\u4ed6\u5bb6"],
            "output": "\u6211\u4f1a\u53bb\u4ed6\u4eec\u5bb6",
        }
    ]
    (folder / "zh.json").write_text(json.dumps(lists))
    hint = "--bleu-tokenize zh or char"
    assert run("eval", "zh.json", "--metric", "bleu").stderr.count(hint) == 1
    assert hint not in run("eval", "zh.json", "--metric", "bleu", "--bleu-tokenize", "zh").stderr
    assert hint not in run("eval", "zh.json", "--metric", "cer").stderr
