"""Options that say more about LMs: whatever the user types is either understood or refused in one line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lm_files import write_arpa, write_checkpoint

from attlm_cli.types import ENSEMBLE_WEIGHTS, MIXTURE, OOV_OF_LM, TEXT_OF_LM
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.lm_changes import with_dictionary, with_lm_changes
from attlm_fairseq.scoring.context.cache import UnigramCache
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.scoring.unknown_words.oov_policy import UNK, OOVPolicy
from attlm_fairseq.text import TextPipeline, parse_steps

CONFIG = RunConfig(
    (
        LMSpec("a", kenlm=Path("a.arpa")),
        LMSpec("b", checkpoints=(Path("1.pt"), Path("2.pt"))),
        LMSpec("c", kenlm=Path("c.arpa"), text=parse_steps(["uppercase"])),
    ),
    parse_steps(["unicode:nfc"]),
)


TYPES = {"ensemble_weights": ENSEMBLE_WEIGHTS, "mixture": MIXTURE, "text": TEXT_OF_LM, "oov": OOV_OF_LM}


def changed_by(config: RunConfig, **options: tuple[str, ...]) -> RunConfig:
    """The configuration after options as the user types them."""
    parsed = {name: tuple(TYPES[name].convert(text, None, None) for text in texts) for name, texts in options.items()}
    return with_lm_changes(config, **parsed)


def spec(config: RunConfig, name: str) -> LMSpec:
    return next(lm for lm in config.lms if lm.name == name)


def test_without_options_nothing_changes():
    assert changed_by(CONFIG) == CONFIG


def test_text_of_all_and_of_one():
    changed = changed_by(CONFIG, text=("a=lowercase,bpe:x=y", "truecase:m=1"))
    assert changed.text == parse_steps(["truecase:m=1"])
    assert [lm.text for lm in changed.lms] == [parse_steps(["lowercase", "bpe:x=y"]), None, parse_steps(["uppercase"])]
    assert changed_by(CONFIG, text=("",)).text == TextPipeline()
    assert spec(changed_by(CONFIG, text=("c=",)), "c").text == TextPipeline()  # no steps, not those of the run


def test_policies_of_all_and_of_one_in_their_order():
    changed = changed_by(CONFIG, oov=("spread:10", "b=penalty:-2"), mixture=("a:1,b:1",))
    assert [lm.oov for lm in changed.lms] == [OOVPolicy("spread", 10), OOVPolicy("penalty", -2), OOVPolicy("spread", 10), UNK]
    assert spec(changed_by(CONFIG, oov=("mix=penalty:-2",), mixture=("a:1,b:1",)), "mix").oov == OOVPolicy("penalty", -2)


def test_mixtures_are_numbered_and_named():
    changed = changed_by(CONFIG, mixture=("a:1,c:3", "d=a:0,b:1e-2"))
    assert spec(changed, "mix").mixture == (("a", 1.0), ("c", 3.0))
    assert spec(changed, "d").mixture == (("a", 0.0), ("b", 0.01))
    assert spec(changed_by(changed, mixture=("d=a:1,c:1",)), "d").mixture == (("a", 1.0), ("c", 1.0))
    with pytest.raises(InputError, match="'a' is one of the LMs already"):
        changed_by(CONFIG, mixture=("a=b:1,c:1",))
    with pytest.raises(InputError, match="mixes 'mix', which is not an LM of this run"):
        changed_by(CONFIG, mixture=("a:1,c:3", "mix:1,b:1"))
    assert [lm.name for lm in changed_by(CONFIG, mixture=("a:1,c:3", "a:1,b:1", "b:1,c:1")).lms[3:]] == ["mix", "mix2", "mix3"]


def test_a_mixture_with_other_members_keeps_the_rest():
    changed = changed_by(CONFIG, mixture=("a:1,b:1",), oov=("mix=penalty:-2",))
    again = spec(changed_by(changed, mixture=("mix=a:1,c:1",)), "mix")
    assert again == LMSpec("mix", mixture=(("a", 1.0), ("c", 1.0)), oov=OOVPolicy("penalty", -2))


def test_an_lm_of_one_checkpoint_is_no_ensemble():
    config = replace(CONFIG, lms=(*CONFIG.lms, LMSpec("d", checkpoints=(Path("3.pt"),))))
    changed = changed_by(config, ensemble_weights=("3:1",))
    assert [lm.ensemble_weights for lm in changed.lms] == [None, (3.0, 1.0), None, None]
    with pytest.raises(InputError, match="there is no ensemble 'd'"):
        changed_by(config, ensemble_weights=("d=1",))


def test_a_value_without_a_name_is_for_lms_that_can_have_it(tmp_path):
    neural, ngram = write_checkpoint(tmp_path / "lm.pt", ["a"]), write_arpa(tmp_path / "lm.arpa", ["a"])
    for kind in ("GPT2LMHeadModel", "BertForMaskedLM", "MarianMTModel"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "config.json").write_text(json.dumps({"model_type": "any", "architectures": [kind]}))
    folders = {"gpt": (tmp_path / "GPT2LMHeadModel",), "bert": (tmp_path / "BertForMaskedLM",)}
    lms = {"neural": (neural,), "ensemble": (neural, ngram), **folders}
    specs = [LMSpec(name, checkpoints=files) for name, files in lms.items()]
    specs += [LMSpec(name, checkpoints=(tmp_path / name,), translation="forward") for name in ("MarianMTModel", "mt.pt")]
    config = RunConfig((*specs, LMSpec("ngram", kenlm=ngram)))
    for field, value, names in (
        ("temperature", 2.0, ["neural"]),
        ("adapt", Path("adapted"), ["neural"]),
        ("sentence_start", "<s>", ["gpt"]),
        ("prompt", "a text", ["gpt"]),
        ("languages", "x:y", ["MarianMTModel"]),
        ("source_prefix", "x: ", ["MarianMTModel"]),
        ("oov", OOVPolicy("penalty", -2), ["neural", "ensemble", "gpt", "bert", "mt.pt", "ngram"]),
        ("unigram_cache", UnigramCache(20, 0.1, 1.0), ["neural", "ensemble", "gpt", "ngram"]),
    ):
        changed = with_lm_changes(config, **{field: [(None, value)]})
        assert [lm.name for lm in changed.lms if getattr(lm, field) == value] == names, field


def test_a_folder_of_dictionaries_is_for_translation_models_of_fairseq(tmp_path):
    folder, file = (LMSpec(path.name, checkpoints=(path,), translation="forward") for path in (tmp_path, tmp_path / "mt.pt"))
    assert [lm.dictionary for lm in with_dictionary(RunConfig((folder, file)), tmp_path).lms] == [None, tmp_path]
    with pytest.raises(InputError, match="--dict: there is no LM that it is for"):
        with_dictionary(RunConfig((folder,)), tmp_path)


def test_tokens_are_for_checkpoints():
    assert spec(with_lm_changes(CONFIG, sentence_start=(("b", "<s>"),)), "b").sentence_start == "<s>"
    with pytest.raises(InputError, match=r"--sentence-start a=\.\.: there is no LM of Hugging Face"):
        with_lm_changes(CONFIG, sentence_start=(("a", "<s>"),))


typed = st.text("ab=:,.-1e /", max_size=12) | st.sampled_from(
    ["a=unk", "b=1:2", "1:2", "a:1,b:1", "unk", "lowercase", "nan:1", "b=inf:1", "a:nan"]
)


@given(st.lists(typed, max_size=2), st.lists(typed, max_size=2), st.lists(typed, max_size=2), st.lists(typed, max_size=2))
def test_any_option_is_understood_or_refused(ensemble_weights, mixture, text, oov):
    try:
        changed = changed_by(CONFIG, ensemble_weights=tuple(ensemble_weights), mixture=tuple(mixture), text=tuple(text), oov=tuple(oov))
    except InputError:
        return
    assert changed.lms[0].kenlm == Path("a.arpa")
    assert {lm.name for lm in CONFIG.lms} <= {lm.name for lm in changed.lms}
