"""Language models in fairseq's own generator: the cached fusion against ``--lm-path``'s, token for token."""

from __future__ import annotations

import math
from argparse import Namespace
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.search import Sampling
from fairseq.sequence_generator import SequenceGenerator
from fairseq.sequence_scorer import SequenceScorer
from foreign_lms import write_fairseq_lm
from lm_files import VARIANTS, write_arpa, write_checkpoint
from pretend_device import NAME
from translation_files import write_translation_model
from translation_models import BEAM, WORDS, decode, make_dictionary, make_model, make_sample, make_task, texts

import attlm_fairseq.plugin
from attlm_fairseq.checkpoints.reading import load_model
from attlm_fairseq.checkpoints.vocabulary import Vocabulary
from attlm_fairseq.decoding import fairseq_search
from attlm_fairseq.decoding.decoder_lm import DecoderLM
from attlm_fairseq.decoding.fairseq_generator import FusedGenerator
from attlm_fairseq.decoding.fairseq_lms import FusedLM, LoadOptions, load_folder_or_checkpoint, load_lm, parse_lms
from attlm_fairseq.decoding.fairseq_search import FastBeamSearch, FewTokensBeamSearch, FusedSampling
from attlm_fairseq.decoding.ngram_tokens import NgramTokens
from attlm_fairseq.errors import InputError
from attlm_fairseq.modules.families import FAMILIES
from attlm_fairseq.scoring.foreign_lms.fairseq_lm import load_fairseq_lm
from attlm_fairseq.scoring.ngrams.kenlm import KenLM, KenLMScorer
from attlm_fairseq.tasks import _lm_fusion
from attlm_fairseq.verbs.export import export_model

attlm_fairseq.plugin.register()


def stock(model, path, weight: float, sample=None, prefix_tokens=None, **options) -> list[list[dict]]:
    """fairseq's own translation task with the LM that fairseq-generate loads for --lm-path."""
    from fairseq.tasks.translation import TranslationConfig, TranslationTask

    task = TranslationTask(TranslationConfig(source_lang="x", target_lang="y"), make_dictionary(WORDS), make_dictionary(WORDS))
    [lm], _ = checkpoint_utils.load_model_ensemble([str(path)], {"data": str(path.parent)})
    lm.prepare_for_inference_(Namespace(generation=Namespace()))
    return decode(task, model, sample, lm, weight, prefix_tokens, **options)


@cache
def cached_model(path):
    return load_model(path).model


def full_pass(path, tokens: torch.Tensor) -> list[float]:
    """ln p of each token of a hypothesis and its end, from one pass over the whole of it."""
    model = cached_model(path)
    with torch.inference_mode():
        log_probs = model.output.log_probs(*model.extract_features(torch.cat((torch.tensor([2]), tokens[:-1])).unsqueeze(0)))[0]
    return log_probs[range(len(tokens)), tokens].tolist()


def assert_same(found, expected) -> None:
    assert texts(found) == texts(expected)
    for ours, theirs in zip(found, expected, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert one["score"].item() == pytest.approx(other["score"].item(), abs=1e-4)
            torch.testing.assert_close(one["positional_scores"], other["positional_scores"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("family", [*FAMILIES, *VARIANTS])
def test_the_same_as_lm_path_for_every_family(tmp_path, monkeypatch, family):
    """Beams move, hypotheses end at different steps, finished sentences leave the batch, and both generators agree."""
    monkeypatch.setattr(fairseq_search, "PIECE_SIZE", 4)  # that the few words are more than the largest pieces
    path = write_checkpoint(tmp_path / "lm.pt", WORDS, **VARIANTS.get(family, {"_name": family}))
    lengths, changed = set(), 0
    for seed in range(2):
        model, sample = make_model(seed), make_sample(seed=seed)
        task = make_task(lms=f"{path}=0.6")
        found = decode(task, model, sample)
        assert_same(found, stock(model, path, 0.6, sample))
        changed += texts(found) != texts(decode(make_task(), model, sample))
        for of_sentence in found:
            for hypothesis in of_sentence:
                lengths.add(len(hypothesis["tokens"]))
                assert hypothesis["lm_scores"][0].tolist() == pytest.approx(full_pass(path, hypothesis["tokens"]), abs=1e-4)
    assert len(lengths) > 3
    assert changed == 2


@pytest.mark.usefixtures("pretended_device")
@pytest.mark.parametrize("family", [*FAMILIES, *VARIANTS])
def test_on_a_device_that_is_not_the_processor(tmp_path, family):
    """Translation model, neural LM, a KenLM model and the search: the same hypotheses, and no two devices mixed."""
    path = write_checkpoint(tmp_path / "lm.pt", WORDS, **VARIANTS.get(family, {"_name": family}))
    lms = f"{path}=0.4:{write_arpa(tmp_path / 'lm.arpa', WORDS)}=0.2"
    sample = make_sample()
    sample["net_input"] = {name: tokens.to(NAME) for name, tokens in sample["net_input"].items()}
    found = decode(make_task(lms=lms), make_model().to(NAME), sample)
    assert {hypothesis["tokens"].device.type for of_sentence in found for hypothesis in of_sentence} == {NAME}
    assert texts(found) == texts(decode(make_task(lms=lms), make_model()))


@pytest.mark.usefixtures("pretended_device")
@pytest.mark.parametrize("kind", ["this package's", "transformer_lm", "lstm_lm"])
def test_lms_that_stay_on_the_cpu(tmp_path, kind):
    """For --eval-bleu in training, fairseq builds the generator while the translation model is still on the CPU."""
    path = write_checkpoint(tmp_path / "lm.pt", WORDS) if kind == "this package's" else write_fairseqs_own(tmp_path, kind)
    task, model, sample = make_task(lms=f"{path}=0.4"), make_model(), make_sample()
    expected = decode(task, model, sample)
    generator = task.build_generator([model], SimpleNamespace(beam=BEAM, max_len_b=12))
    model.to(NAME)
    sample["net_input"] = {name: tokens.to(NAME) for name, tokens in sample["net_input"].items()}
    assert texts(task.inference_step(generator, [model], sample)) == texts(expected)


@pytest.mark.usefixtures("pretended_device")
def test_int8_on_another_device_is_one_line(tmp_path):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    with pytest.raises(InputError, match=f"{path}: precision int8 needs a model on an x86 CPU"):
        decode(make_task(lms=f"{path}=0.6", lm_precision="int8"), make_model().to(NAME))


@pytest.mark.parametrize("options", [{"unnormalized": True, "lenpen": 0.5}, {"min_len": 4, "no_repeat_ngram_size": 2, "unkpen": 1.0}])
def test_the_same_as_lm_path_with_other_options(tmp_path, options):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    assert_same(decode(make_task(lms=f"{path}=0.6"), make_model(), **options), stock(make_model(), path, 0.6, **options))


def test_the_same_as_lm_path_with_forced_prefixes(tmp_path):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS, _name="amsrn_lm")
    prefix = torch.tensor([[5, 6], [7, 1], [8, 9], [5, 5], [10, 1], [4, 4]])  # 1 is padding: a shorter prefix
    found = decode(make_task(lms=f"{path}=0.6"), make_model(), prefix_tokens=prefix)
    assert_same(found, stock(make_model(), path, 0.6, prefix_tokens=prefix))
    assert all(of_sentence[0]["tokens"][0] == first for of_sentence, first in zip(found, prefix[:, 0], strict=True))


def test_a_forced_prefix_may_end_the_sentence(tmp_path):
    path, ngram = write_checkpoint(tmp_path / "lm.pt", WORDS), write_arpa(tmp_path / "lm.arpa", WORDS)
    prefix = torch.tensor([[5, 6, 2], [7, 2, 1], [8, 9, 4], [5, 5, 2], [9, 1, 1], [4, 1, 1]])  # 2 is the end
    found = decode(make_task(lms=f"{path}=0.6"), make_model(), prefix_tokens=prefix)
    assert_same(found, stock(make_model(), path, 0.6, prefix_tokens=prefix))
    task = make_task(lms=f"{path}=0.6:{ngram}=0.1")
    for hypothesis in (hypothesis for of_sentence in decode(task, make_model(), prefix_tokens=prefix) for hypothesis in of_sentence):
        assert hypothesis["lm_scores"][0].tolist() == pytest.approx(full_pass(path, hypothesis["tokens"]), abs=1e-4)
        words = [task.target_dictionary[token] for token in hypothesis["tokens"][:-1]]
        assert hypothesis["lm_scores"][1].tolist() == pytest.approx(KenLMScorer(ngram).score([words])[0].log_probs, abs=1e-4)


def test_lm_path_is_followed_with_its_own_dictionary(tmp_path):
    """As fairseq-interactive and fairseq-generate call it; what the latter has loaded by then is not trusted."""
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    expected = stock(make_model(), path, 0.6)
    assert_same(decode(make_task(), make_model(), lm_path=str(path), lm_weight=0.6), expected)
    [loaded], _ = checkpoint_utils.load_model_ensemble([str(path)], {"data": str(path.parent)})
    assert_same(decode(make_task(), make_model(), lm_path=str(path), lm_model=loaded, lm_weight=0.6), expected)
    assert_same(decode(make_task(), make_model(), lm_model=loaded, lm_weight=0.6), expected)  # a program's own


def test_weights_of_int8_find_nearly_the_same(tmp_path):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    task = make_task(lms=f"{path}=0.6", lm_precision="int8")
    found = decode(task, make_model())
    assert task.last_generator.lms[0].lm.precision == "int8"
    for of_sentence in found:
        for hypothesis in of_sentence:
            assert hypothesis["lm_scores"][0].tolist() == pytest.approx(full_pass(path, hypothesis["tokens"]), abs=0.2)


def test_an_exported_folder_is_the_checkpoint(tmp_path):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    export_model(path, tmp_path / "folder")
    assert_same(decode(make_task(lms=f"{tmp_path / 'folder'}=0.6"), make_model()), stock(make_model(), path, 0.6))


def write_fairseqs_own(tmp_path, architecture: str) -> Path:
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
    from fairseq.models.transformer_lm import TransformerLanguageModelConfig
    from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask

    make_dictionary(WORDS).save(str(tmp_path / "dict.txt"))
    sizes = dict.fromkeys(("decoder_embed_dim", "decoder_ffn_embed_dim", "decoder_hidden_size", "decoder_out_embed_dim"), 16)
    own = {"arch": architecture, "task": "language_modeling", "data": str(tmp_path), "criterion": "cross_entropy", "dropout": 0.0}
    own |= {"tokens_per_sample": 64, "max_target_positions": 64}
    defaults = {name: value for name, value in vars(TransformerLanguageModelConfig()).items() if not str(value).startswith("${")}
    arguments = Namespace(**defaults | sizes | {"decoder_layers": 1, "decoder_attention_heads": 2} | own)
    ARCH_CONFIG_REGISTRY[architecture](arguments)
    task = LanguageModelingTask.setup_task(LanguageModelingConfig(data=str(tmp_path)))
    torch.manual_seed(1)
    model = ARCH_MODEL_REGISTRY[architecture].build_model(arguments, task)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)
    history = [{"num_updates": 1, "optimizer_name": "FairseqNAG", "lr_scheduler_state": {}}]
    iterator = {"train_iterator": {"epoch": 2, "iterations_in_epoch": 0}}
    content = {"args": arguments, "model": model.state_dict(), "optimizer_history": history, "extra_state": iterator}
    checkpoint_utils.torch_persistent_save(content, str(tmp_path / "lm.pt"))
    return tmp_path / "lm.pt"


@pytest.mark.parametrize("architecture", ["transformer_lm", "lstm_lm"])
def test_fairseqs_own_language_models(tmp_path, architecture):
    path = write_fairseqs_own(tmp_path, architecture)
    found = decode(make_task(lms=f"{path}=0.6"), make_model())
    assert_same(found, stock(make_model(), path, 0.6))
    assert texts(found) != texts(decode(make_task(), make_model()))


@pytest.mark.parametrize("kind", ["transformer_lm", "lstm_lm", "fconv_lm"])
def test_fairseqs_own_language_models_begin_as_they_were_trained(tmp_path, kind):
    """With --add-bos-token, as scoring reads them."""
    path = write_fairseq_lm(tmp_path / "lm.pt", kind, add_bos_token=True)
    scorer = load_fairseq_lm(path, "lm")
    lm = load_folder_or_checkpoint(path, LoadOptions())
    sentence = scorer.lm.vocabulary.ids(["the", "cat", "sat"])
    states, found = lm.start(), []
    for token, following in pairwise([2, *sentence, 2]):
        log_probs, states = lm.step(states, torch.tensor([token]))
        found.append(log_probs[0, following].item())
    assert found == pytest.approx(scorer.score([["the", "cat", "sat"]])[0].log_probs, abs=1e-4)


def test_fairseqs_own_language_models_read_no_more_than_they_were_trained_on(tmp_path):
    lm = load_folder_or_checkpoint(write_fairseq_lm(tmp_path / "lm.pt", "transformer_lm"), LoadOptions())
    states = lm.start()
    for token in [2, *[4] * 63]:
        _, states = lm.step(states, torch.tensor([token]))
    with pytest.raises(InputError, match=r"lm.pt: a hypothesis has more than the 64 tokens .*give a smaller --max-len-b"):
        lm.step(states, torch.tensor([4]))


def test_fairseqs_own_models_that_cannot_be_used_are_one_line(tmp_path):
    path = write_fairseq_lm(tmp_path / "lm.pt", "transformer_lm")
    with pytest.raises(InputError, match=r"lm.pt: is not a model of this package, which alone can be loaded with --lm-precision"):
        load_folder_or_checkpoint(path, LoadOptions(precision="int8"))
    other = (tmp_path / "dict.txt").rename(tmp_path / "words.txt")
    with pytest.raises(InputError, match=r"words.txt: fairseq's own language models read a file of the name dict.txt; rename it"):
        load_folder_or_checkpoint(path, LoadOptions(dictionary=other))
    other.rename(tmp_path / "dict.txt")
    content = torch.load(path, weights_only=False)
    content["model"]["decoder.layers.0.fc1.bias"][0] = math.nan
    torch.save(content, path)
    with pytest.raises(InputError, match=r"lm.pt: its weights are no finite numbers"):
        load_folder_or_checkpoint(path, LoadOptions())
    translation = write_translation_model(tmp_path / "mt" / "mt.pt")
    (tmp_path / "mt" / "dict.txt").touch()
    with pytest.raises(InputError, match=r"mt.pt: holds a TransformerModel, not a language model"):
        load_folder_or_checkpoint(translation, LoadOptions())


def test_weight_zero_is_no_lm(tmp_path, capsys):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    without = decode(make_task(), make_model())
    for found in (
        decode(make_task(lms=f"{path}=0"), make_model()),
        decode(make_task(), make_model(), lm_path=str(path), lm_weight=0.0),
        decode(make_task(lms=f"{path}=0.4:{path}=-0.4"), make_model()),
    ):
        assert_same(found, without)
    assert capsys.readouterr().err == f"attlm: {path} is not used: --lm-weight is 0\n"
    decode(make_task(), make_model(), lm_path=str(path), lm_weight=0.1)
    assert capsys.readouterr().err == ""
    [loaded], _ = checkpoint_utils.load_model_ensemble([str(path)], {"data": str(path.parent)})
    for task, lm in ((make_task(), loaded), (make_task(lms="gone=0", word_lms="gone=0", phrases="gone=0"), None)):
        decode(task, make_model(), lm_model=lm)
        assert type(task.last_generator) is SequenceGenerator, "what is not used is not read either"


def constant_lm(tmp_path, bias: dict[int, float]):
    """An LM whose distribution is the same after every prefix."""
    path = write_checkpoint(tmp_path / "lm.pt", WORDS, output_layer="untied")
    content = torch.load(path)
    content["model"]["decoder.model.output.weight"].zero_()
    content["model"]["decoder.model.output.bias"].zero_()
    for token, value in bias.items():
        content["model"]["decoder.model.output.bias"][token] = value
    torch.save(content, path)
    return path


def test_a_uniform_lm_is_no_lm_where_length_does_not_count(tmp_path):
    """It adds the same to every token: the mean over a hypothesis moves by a constant, and the order stays."""
    path = constant_lm(tmp_path, {})
    found, without = decode(make_task(lms=f"{path}=0.5"), make_model()), decode(make_task(), make_model())
    assert texts(found) == texts(without)
    uniform = -torch.log(torch.tensor(4.0 + len(WORDS))).item()
    for ours, plain in zip(found, without, strict=True):
        for one, other in zip(ours, plain, strict=True):
            assert one["score"].item() == pytest.approx(other["score"].item() + 0.5 * uniform, abs=1e-4)


def test_a_strongly_biased_lm_forces_its_words(tmp_path):
    path = constant_lm(tmp_path, {9: 400.0, 2: 390.0})
    found = decode(make_task(lms=f"{path}=1"), make_model())
    assert all(set(of_sentence[0]["tokens"].tolist()) <= {9, 2} for of_sentence in found)
    assert any(9 in of_sentence[0]["tokens"] for of_sentence in found)
    without = decode(make_task(lms=f"{path}=-1"), make_model())  # and taken out, never
    assert all(9 not in hypothesis["tokens"] for of_sentence in without for hypothesis in of_sentence)


def test_two_lms_of_half_the_weight_are_one(tmp_path):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS, attention_score="combined")
    whole = decode(make_task(lms=f"{path}=0.6"), make_model())
    assert_same(decode(make_task(lms=f"{path}=0.3:{path}=0.3"), make_model()), whole)
    assert_same(decode(make_task(lms=f"{path}=0.3"), make_model(), lm_path=str(path), lm_weight=0.3), whole)
    assert_same(decode(make_task(lms=f"{path}=0.9:{path}=-0.3"), make_model()), whole)


def test_density_ratio_is_the_sum_of_both(tmp_path):
    paths = [write_checkpoint(tmp_path / str(seed) / "lm.pt", WORDS, seed=seed) for seed in (1, 2)]
    task = make_task(lms=f"{paths[0]}=0.5:{paths[1]}=-0.4")
    found, without = decode(task, make_model()), make_model()
    for of_sentence, source in zip(found, make_sample()["net_input"]["src_tokens"], strict=True):
        for hypothesis in of_sentence:
            tokens = hypothesis["tokens"]
            one, other = (torch.tensor(full_pass(path, tokens)) for path in paths)
            torch.testing.assert_close(hypothesis["lm_scores"], torch.stack((one, other)), rtol=0, atol=1e-4)
            with torch.inference_mode():
                output = without(source.unsqueeze(0), None, torch.cat((torch.tensor([2]), tokens[:-1])).unsqueeze(0))
            translation = without.get_normalized_probs(output, log_probs=True)[0, range(len(tokens)), tokens]
            torch.testing.assert_close(hypothesis["positional_scores"], translation + 0.5 * one - 0.4 * other, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("count", "size", "piece"), [(1, 1, 4), (3, 3, 4), (2, 8, 4), (2, 12, 4), (2, 14, 4), (7, 50, 7), (10, 1003, 64)])
def test_the_largest_are_those_of_topk(monkeypatch, count, size, piece):
    monkeypatch.setattr(fairseq_search, "PIECE_SIZE", piece)
    for seed in range(20):
        rows = torch.randn(3, size, generator=torch.Generator().manual_seed(seed))
        rows[1, size // 2 :] = -math.inf  # as where a sentence has to end
        rows[2] = rows[2].sort(descending=seed % 2 == 0).values
        expected = rows.topk(count)
        values, places = fairseq_search.largest(rows, count)
        assert torch.equal(values, expected.values)
        assert torch.equal(rows.gather(1, places), values)
        finite = values > -math.inf
        assert torch.equal(places[finite], expected.indices[finite])
        assert all(len(set(row)) == count for row in places.tolist())


def test_each_batch_begins_anew(tmp_path):
    path, arpa = write_checkpoint(tmp_path / "lm.pt", WORDS), write_arpa(tmp_path / "lm.arpa", WORDS)
    task, model = make_task(lms=f"{path}=0.6:{arpa}=0.4"), make_model()
    first = decode(task, model)
    generator = task.last_generator
    for sample in (make_sample(sentences=2, seed=1), make_sample()):
        found = task.inference_step(generator, [model], sample)
    assert_same(found, first)
    assert_same(decode(task, model, prefix_tokens=torch.empty(6, 0, dtype=torch.long)), first)


def test_hypotheses_of_the_same_words_are_one_row_of_the_lm(tmp_path, monkeypatch):
    """At the start all are; sentences with the same source stay so to their ends."""
    task = make_task(lms=f"{write_checkpoint(tmp_path / 'lm.pt', WORDS)}=0.6")
    rows, step = [], DecoderLM.step
    monkeypatch.setattr(DecoderLM, "step", lambda lm, states, tokens: rows.append(len(tokens)) or step(lm, states, tokens))
    one = make_sample(sentences=1)
    hypotheses = decode(task, make_model(), one)
    alone = rows.copy()
    rows.clear()
    source = one["net_input"]["src_tokens"].expand(3, -1)
    three = {"id": torch.arange(3), "net_input": {"src_tokens": source, "src_lengths": torch.full((3,), 7)}}
    assert_same(decode(task, make_model(), three), hypotheses * 3)
    assert rows == alone
    assert alone[0] == 1
    assert max(alone) <= BEAM


def test_kenlm_scores_are_kenlms_own(tmp_path):
    arpa = write_arpa(tmp_path / "lm.arpa", WORDS[:-3])  # three symbols it does not know
    scorer = KenLMScorer(arpa)
    task = make_task(lms=f"{arpa}=0.8")
    for seed in range(2):
        found = decode(task, make_model(seed), make_sample(seed=seed))
        assert isinstance(task.last_generator.search, FewTokensBeamSearch)
        for of_sentence in found:
            for hypothesis in of_sentence:
                words = [task.target_dictionary[token] for token in hypothesis["tokens"][:-1]]
                assert hypothesis["lm_scores"][0].tolist() == pytest.approx(scorer.score([words])[0].log_probs, abs=1e-4)


@pytest.mark.parametrize("options", [{}, {"min_len": 4, "no_repeat_ngram_size": 2, "unkpen": -1.0}, {"unnormalized": True}])
@pytest.mark.parametrize("seed", range(2))
def test_few_tokens_of_kenlm_are_as_good_as_all(tmp_path, monkeypatch, seed, options):
    arpa = write_arpa(tmp_path / "lm.arpa", WORDS, seed)
    neural = write_checkpoint(tmp_path / "lm.pt", WORDS)
    prefix = torch.tensor([[5, 6], [7, 1], [8, 9], [5, 5], [10, 1], [4, 4]]) if seed == 1 else None
    for lms in (f"{arpa}=3", f"{arpa}=0.4:{neural}=0.3:{arpa}=0.4"):
        few = decode(make_task(lms=lms), make_model(seed), prefix_tokens=prefix, **options)
        assert isinstance(few[0][0]["lm_scores"], torch.Tensor)
        with monkeypatch.context() as patch:
            patch.setattr(_lm_fusion, "load_lm", lambda *arguments: replace(load_lm(*arguments), ngram=None))
            task = make_task(lms=lms)
            every = decode(task, make_model(seed), prefix_tokens=prefix, **options)
            assert not isinstance(task.last_generator.search, FewTokensBeamSearch)
        assert_same(few, every)


@pytest.mark.parametrize("tags", [0, 1])
@pytest.mark.parametrize("weight", [0.5, 5.0])
def test_few_tokens_are_the_best_of_all(tmp_path, tags, weight):
    """Totals of every token, with what KenLM says of it after the words that follow the language tags."""
    lm, dictionary = KenLM(write_arpa(tmp_path / "lm.arpa", WORDS)), make_dictionary(WORDS)
    words = ["<unk>", "<unk>", "</s>", *dictionary.symbols[3:]]
    search = FewTokensBeamSearch(dictionary, [(NgramTokens(lm, Vocabulary(dictionary.symbols)), weight)])
    search.tags = tags
    for seed in range(20):
        random_ = torch.Generator().manual_seed(seed)
        tokens = torch.randint(4, len(words), (2 * BEAM, 3), generator=random_)
        totals = 3 * torch.randn(2, BEAM * len(words), generator=random_)
        added = []
        for row in tokens.tolist():
            state = lm.start()
            for token in row[1 + tags :]:
                state = lm.score(state, words[token])[1]
            added.append([weight * lm.score(state, word)[0] for word in words])
        expected = (totals + torch.tensor(added).view(2, -1)).topk(2 * BEAM)
        values, places = search.best(totals, 2 * BEAM, (2, BEAM, len(words)), tokens)
        torch.testing.assert_close(values, expected.values)
        assert torch.equal(places, expected.indices)
    if tags:
        values, _ = search.best(totals, 3, (2, BEAM, len(words)), tokens[:, :1])
        assert torch.equal(values, totals.topk(3).values), "the tag is not asked for"


def test_kenlm_is_taken_out_and_sampled_with(tmp_path):
    """Where few tokens do not do: negative weights, and searches other than plain beam search."""
    arpa = write_arpa(tmp_path / "lm.arpa", WORDS)
    assert_same(decode(make_task(lms=f"{arpa}=0.5:{arpa}=-0.5"), make_model()), decode(make_task(), make_model()))
    task = make_task(lms=f"{arpa}=-0.5")
    decode(task, make_model())
    assert type(task.last_generator.search) is FastBeamSearch
    task = make_task(lms=f"{arpa}=0.5")
    [of_sentence, *_] = decode(task, make_model(), sampling=True, sampling_topk=5)
    assert isinstance(task.last_generator.search, Sampling)
    words = [task.target_dictionary[token] for token in of_sentence[0]["tokens"][:-1]]
    assert of_sentence[0]["lm_scores"][0].tolist() == pytest.approx(KenLMScorer(arpa).score([words])[0].log_probs, abs=1e-4)


def test_the_share_of_top_p_is_that_of_the_sums(tmp_path):
    """Which sum to less than 1 with the LM, so that fairseq would keep all tokens."""
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    sums = torch.randn(2, 1, 9, generator=torch.Generator().manual_seed(1)).log_softmax(-1)
    for shift in (0.0, -2.0, 3.0):
        probabilities, tokens = FusedSampling(make_task().target_dictionary, sampling_topp=0.5)._sample_topp(sums + shift)
        expected, places = Sampling(make_task().target_dictionary, sampling_topp=0.5)._sample_topp(sums.clone())
        assert torch.equal(tokens, places)
        torch.testing.assert_close(probabilities, expected * math.exp(shift))
    task = make_task(lms=f"{path}=0.5")
    [of_sentence, *_] = decode(task, make_model(), sampling=True, sampling_topp=0.5)
    assert type(task.last_generator.search) is FusedSampling
    assert of_sentence[0]["lm_scores"][0].tolist() == pytest.approx(full_pass(path, of_sentence[0]["tokens"]), abs=1e-4)


def test_lms_of_a_program_are_compared_with_the_dictionary(tmp_path):
    lm = DecoderLM.load(write_checkpoint(tmp_path / "lm.pt", WORDS[::-1]))
    task = make_task()
    with pytest.raises(InputError, match=r"mine: its dictionary has 29 symbols, .*first difference is row 4"):
        FusedGenerator([make_model()], task.target_dictionary, lms=[FusedLM("mine", lm, 0.3)])


def test_another_dictionary_is_refused_and_mapped_on_request(tmp_path):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    shuffled = WORDS[::-1]
    with pytest.raises(InputError, match=r"lm.pt: .*first difference is row 4, 'w0' in the LM and 'w24' in the decoder"):
        decode(make_task(shuffled, lms=f"{path}=0.6"), make_model())
    task = make_task([*WORDS[:-1], "unheard-of"], lms=f"{path}=0.6", lm_map_symbols=True)
    for of_sentence in decode(task, make_model()):
        tokens, scores = of_sentence[0]["tokens"], of_sentence[0]["lm_scores"][0]
        shares = (tokens == 3) | (tokens == 4 + len(WORDS) - 1)  # <unk> and the last word, two that share p(<unk>)
        expected = torch.tensor(full_pass(path, torch.where(shares, 3, tokens))) - shares * math.log(2)
        torch.testing.assert_close(scores, expected, rtol=0, atol=1e-4)


def test_a_programs_own_lm_is_mapped_on_request(tmp_path):
    path, words = write_checkpoint(tmp_path / "lm.pt", WORDS), [*WORDS[:-1], "unheard-of"]
    [loaded], _ = checkpoint_utils.load_model_ensemble([str(path)], {"data": str(path.parent)})
    with pytest.raises(InputError, match=r"^lm: its dictionary has"):
        decode(make_task(words), make_model(), lm_model=loaded, lm_weight=0.6)
    found = decode(make_task(words, lm_map_symbols=True), make_model(), lm_model=loaded, lm_weight=0.6)
    assert_same(found, decode(make_task(words, lm_map_symbols=True, lms=f"{path}=0.6"), make_model()))


def test_options_without_an_lm_that_they_are_for_are_told(tmp_path, capsys):
    neural, ngram = write_checkpoint(tmp_path / "lm.pt", WORDS), write_arpa(tmp_path / "lm.arpa", WORDS)
    given = {"lm_dict": str(neural.with_name("dict.txt")), "lm_map_symbols": True, "lm_precision": "int8"}
    for lms, options in ((f"{ngram}=0.6", given), (f"{neural}=0.6", {"word_lm_unk_offset": -5.0})):
        make_task(lms=lms, **options).build_generator([make_model()], SimpleNamespace())
        said = capsys.readouterr().err
        assert all(f"--{name.replace('_', '-')} has no effect: no language model with a weight can use it" in said for name in options)
    make_task(lms=f"{neural}=0.6:{ngram}=0.2", **given).build_generator([make_model()], SimpleNamespace())
    assert "has no effect" not in capsys.readouterr().err


@pytest.mark.parametrize(("lacks", "warned"), [(0, False), (3, False), (20, True)])
@pytest.mark.parametrize("write", [write_checkpoint, write_arpa])
def test_symbols_that_an_lm_lacks_are_counted(tmp_path, capsys, write, lacks, warned):
    path = write(tmp_path / "lm", WORDS[: len(WORDS) - lacks])
    make_task(lms=f"{path}=0.6", lm_map_symbols=True).build_generator([make_model()], SimpleNamespace())
    said = capsys.readouterr().err
    assert (f"{path} lacks {lacks} of the 29 target symbols; they are its <unk>" in said) == (lacks > 0)
    assert ("WARNING" in said) == warned


def test_a_target_dictionary_with_other_special_symbols_is_refused(tmp_path):
    task = make_task(lms=f"{write_arpa(tmp_path / 'lm.arpa', WORDS)}=0.3")
    task.tgt_dict = Dictionary(bos="<begin>")
    with pytest.raises(InputError, match="the target dictionary begins with <begin> <pad> </s> <unk>, expected <s> <pad> </s> <unk>"):
        task.build_generator([make_model()], SimpleNamespace())


def test_the_dictionary_may_be_named_or_be_the_translations_own(tmp_path, monkeypatch):
    path = write_checkpoint(tmp_path / "lm" / "lm.pt", WORDS)
    expected = decode(make_task(lms=f"{path}=0.6"), make_model())
    (tmp_path / "data").mkdir()
    (path.parent / "dict.txt").rename(tmp_path / "elsewhere.txt")
    with pytest.raises(InputError, match=r"gone\.txt: there is no such file; correct --lm-dict"):
        decode(make_task(lms=f"{path}=0.6", lm_dict="gone.txt"), make_model())
    with pytest.raises(InputError, match=r"no dict.txt found: .* next to the checkpoint or name it with --lm-dict$"):
        decode(make_task(lms=f"{path}=0.6", data=str(tmp_path / "data")), make_model())
    assert_same(decode(make_task(lms=f"{path}=0.6", lm_dict=str(tmp_path / "elsewhere.txt")), make_model()), expected)
    (tmp_path / "elsewhere.txt").rename(tmp_path / "data" / "dict.txt")
    assert_same(decode(make_task(lms=f"{path}=0.6", data=str(tmp_path / "data")), make_model()), expected)


def test_the_report_counts_what_the_lms_did(tmp_path):
    path, arpa = write_checkpoint(tmp_path / "lm.pt", WORDS), write_arpa(tmp_path / "lm.arpa", WORDS)
    task = make_task(lms=f"{path}=0.6:{arpa}=0.4", lm_compare=True)
    found = decode(task, make_model())
    report = task.last_generator.report
    without = decode(make_task(), make_model())
    differ = sum(ours[0]["tokens"].tolist() != plain[0]["tokens"].tolist() for ours, plain in zip(found, without, strict=True))
    assert (report.sentences, report.compared, report.differ) == (6, 6, differ)
    assert differ > 0
    tokens = sum(len(of_sentence[0]["tokens"]) for of_sentence in found)
    neural = sum(of_sentence[0]["lm_scores"][0].sum().item() for of_sentence in found)
    total = sum(of_sentence[0]["positional_scores"].sum().item() for of_sentence in found)
    assert report.tokens == tokens
    assert report.sums[1] == pytest.approx(neural, abs=1e-3)
    assert report.sums[0] + 0.6 * report.sums[1] + 0.4 * report.sums[2] == pytest.approx(total, abs=1e-3)
    assert f"lm.pt (weight 0.6) {neural / tokens:.4f}" in str(report)
    assert f"differs from decoding without them in {differ} of 6" in str(report)


class Other(SequenceGenerator):
    """A generator of a program."""


def test_generators_that_language_models_are_not_for(tmp_path, capsys):
    task = make_task(lms=f"{write_arpa(tmp_path / 'lm.arpa', WORDS)}=0.3", lm_compare=True)
    assert type(task.build_generator([make_model()], SimpleNamespace(score_reference=True))) is SequenceScorer
    assert "--score-reference scores with the translation model alone; the language models are not used" in capsys.readouterr().err
    with pytest.raises(InputError, match="language models cannot be added to a Other; leave --lms and --lm-path out"):
        task.build_generator([make_model()], SimpleNamespace(), Other)
    assert type(make_task().build_generator([make_model()], SimpleNamespace(), Other)) is Other
    with pytest.raises(InputError, match="--lm-compare compares best hypotheses, which --sampling does not look for"):
        task.build_generator([make_model()], SimpleNamespace(sampling=True))


@pytest.mark.parametrize("full_context", [False, True])
def test_alignments_are_still_printed(tmp_path, full_context):
    path, model = write_checkpoint(tmp_path / "lm.pt", WORDS), make_model()
    model.full_context_alignment = full_context  # of models that align a whole hypothesis once more
    sample = make_sample() | {"target": make_sample()["net_input"]["src_tokens"]}
    found = decode(make_task(lms=f"{path}=0.6"), model, sample, print_alignment="hard")
    assert texts(found) == texts(decode(make_task(lms=f"{path}=0.6"), make_model()))
    assert all(isinstance(of_sentence[0]["alignment"], list) for of_sentence in found)


@pytest.mark.parametrize("text", ["lm.pt", "lm.pt=", "=0.3", "lm.pt=much", "lm.pt=nan", "lm.pt=0.3:", "lm.pt=0.3:other.pt"])
def test_lms_that_are_not_understood(text):
    with pytest.raises(InputError, match="expected PATH=WEIGHT"):
        parse_lms(text)


@pytest.mark.parametrize("weight", [math.nan, math.inf, -math.inf])
def test_a_weight_that_is_no_finite_number_is_refused(tmp_path, weight):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    with pytest.raises(InputError, match=r"--lm-weight .*: expected a finite number"):
        decode(make_task(), make_model(), lm_path=str(path), lm_weight=weight)


def test_generators_of_one_task_share_its_lms(tmp_path):
    path, ngram = write_checkpoint(tmp_path / "lm.pt", WORDS), write_arpa(tmp_path / "lm.arpa", WORDS)
    task = make_task(lms=f"{path}=0.3:{ngram}=0.2")
    lms = []
    for beam in (2, 3):
        generator = task.build_generator([make_model()], SimpleNamespace(beam=beam, max_len_b=12))
        generator.generate([make_model()], make_sample())
        lms.append([fused.lm for fused in generator.lms])
    assert len(lms[0]) == 2
    assert all(one is other for one, other in zip(*lms, strict=True))
    other = task.build_generator([make_model()], SimpleNamespace(beam=2, lm_path=str(ngram), lm_weight=0.5))
    assert [fused.weight for fused in other.lms] == [0.3, 0.2, 0.5]
    found, again = (texts(decode(each, make_model())) for each in (task, make_task(lms=f"{path}=0.3:{ngram}=0.2")))
    assert found == again


def test_a_checkpoint_is_read_once(tmp_path, monkeypatch):
    path, reads, load = write_checkpoint(tmp_path / "lm.pt", WORDS), [], torch.load
    monkeypatch.setattr(torch, "load", lambda file, **options: reads.append(file) or load(file, **options))
    load_lm(path, load_model(path).vocabulary)
    assert len(reads) == 2  # load_model's and load_lm's
    export_model(path, tmp_path / "folder")
    assert len(reads) == 3


def test_unusable_files_are_one_line(tmp_path):
    (tmp_path / "text").write_text("no model at all\n")
    for path, message in ((tmp_path / "nosuch.pt", "no such file"), (tmp_path / "text", "cannot be loaded as an ARPA file")):
        with pytest.raises(InputError, match=message):
            decode(make_task(lms=f"{path}=0.6"), make_model())


def test_a_folder_of_names_with_an_equals_sign(tmp_path):
    assert [(str(path), weight) for path, weight in parse_lms("lr=0.1/lm.pt=0.3:b.arpa=-1e-2")] == [
        ("lr=0.1/lm.pt", 0.3),
        ("b.arpa", -0.01),
    ]


def test_the_language_model_is_a_decoder_lm(tmp_path):
    """The generator needs nothing but start, step and select."""
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    task = make_task(lms=f"{path}=0.6")
    decode(task, make_model())
    [fused] = task.last_generator.lms
    assert isinstance(fused.lm, DecoderLM)
    assert fused.lm.vocabulary == Vocabulary(task.target_dictionary.symbols)


def test_models_of_presets_are_models_of_this_package(tmp_path):
    sizes = {"decoder_layers": 1, "decoder_hidden_size": 16, "decoder_embed_dim": 16}
    path = write_checkpoint(tmp_path / "lm.pt", WORDS, _name="zaremba_medium", **sizes)
    task = make_task(lms=f"{path}=0.6", lm_precision="int8")
    decode(task, make_model())
    assert task.last_generator.lms[0].lm.precision == "int8"
