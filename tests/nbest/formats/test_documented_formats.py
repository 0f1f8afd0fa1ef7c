"""Every sample of docs/formats.md is recognised as what its section says, is read, and comes back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from attlm_fairseq.nbest.formats import FOLDER_FORMATS, FORMATS, open_nbest, write_nbest

PAGE = Path(__file__).parents[3] / "docs" / "formats.md"
SECTIONS = re.findall(r"^### (\S+?)(?:, \S+)?\n(.*?)(?=^##)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
SAMPLES = [(name, text) for name, section in SECTIONS for text in re.findall(r"^```text\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)]


def test_every_format_has_a_section():
    assert {name for name, _ in SECTIONS} == {*FORMATS, *FOLDER_FORMATS} - {"tsv"}
    assert {name for name, _ in SAMPLES} == {*FORMATS} - {"tsv", "espnet"}


@pytest.mark.parametrize(("name", "text"), SAMPLES)
def test_a_sample_is_what_its_section_says(name, text, tmp_path):
    path = tmp_path / "list"
    path.write_text(text)
    form, lists = open_nbest(str(path), {"nemo": "nemo:2", "text": "text"}.get(name))  # the others are recognised
    found = list(lists)
    assert form.name == name
    assert found[0].hypotheses[0].text.split() in (["first"], ["das", "ist", "gut"], ["\u2581fi", "rst"])
    write_nbest(found, form, str(tmp_path / "again"))
    assert (tmp_path / "again").read_text() == text
