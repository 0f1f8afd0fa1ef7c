"""Learn corrections from lists with references, measure their effect, and jack-knife lists."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import fspath
from pathlib import Path
from types import NoneType

from attlm_fairseq.errors import InputError, require_type, require_utf8, require_whole_number
from attlm_fairseq.files.folders import refuse_filled, whole_folder
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.corrections import Corrections
from attlm_fairseq.nbest.corrections import learn_corrections as learn
from attlm_fairseq.nbest.corrections.jackknife import by_folds, folds_of, splits
from attlm_fairseq.nbest.corrections.numbers import LANGUAGE, check_language
from attlm_fairseq.nbest.corrections.pairs import write_pairs
from attlm_fairseq.nbest.corrections.search_lm import estimate_search_lm
from attlm_fairseq.nbest.corrections.spec import CandidateSpec
from attlm_fairseq.nbest.corrections.table_notes import note_jackknifed
from attlm_fairseq.nbest.corrections.usage import Usage
from attlm_fairseq.nbest.corrections.written import check_steps
from attlm_fairseq.nbest.features.lm_features import default_features
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.tuning.folds import FOLDS
from attlm_fairseq.scoring.context.conversations import ContextSpec
from attlm_fairseq.scoring.unknown_words.oov import OOVCount
from attlm_fairseq.text import TextPipeline, text_pipeline
from attlm_fairseq.verbs.arguments import FilePath
from attlm_fairseq.verbs.configuration import LM, run_config
from attlm_fairseq.verbs.exposure import warn_of_seen_texts
from attlm_fairseq.verbs.fit_of_references import warn_before_learning
from attlm_fairseq.verbs.lists import Lists, groups_of, lists_of
from attlm_fairseq.verbs.references import References, with_references
from attlm_fairseq.verbs.run import scoring, warn_of_replaced_lm

IN_ORDER = (
    "Its scores of these lists are too good: give the LMs in the order of the folds that --texts wrote, with the same lists and options"
)


def learn_corrections(
    lists: Lists, refs: References | None = None, *, lm: FilePath | None = None, language: str = LANGUAGE, text: str | TextPipeline = ""
) -> Corrections:
    """Learn corrections from lists with references: phrases, spoken forms of numbers, and spellings, with probabilities.

    Args:
        lists: n-best lists: NbestLists, lists of strings, or a file.
        refs: references: files, texts in the order of the lists, or texts by id. None: the lists have their own.
        lm: an ARPA or KenLM file that guides the search for candidates. Default: a 4-gram estimated from the
            references.
        language: language of spelled-out numbers, as a num2words code.
        text: text steps after which words are compared, such as ``"remove-punctuation,lowercase"``. Hypotheses keep their case and
            punctuation. The LM is over the words after them.

    Returns:
        Corrections: ``expand(nbest)`` adds candidates to a list, ``save(path)`` writes the table.

    Raises:
        InputError: the input is unreadable or wrong, there are no references, or a text step does not treat each word by itself.
    """
    check_language(language)
    if lm is not None:
        require_utf8(fspath(lm), "the name of the LM, which the table holds,")
    steps = check_steps(text_pipeline(text))
    read = with_references(lists_of(lists), refs)
    warn_before_learning(read, steps)
    if lm is not None:
        _warn_of_unknown(Path(fspath(lm)), [steps.words(text) for nbest in read for text in nbest.references])
    return learn(read, lm=None if lm is None else Path(fspath(lm)), language=language, text=steps)


def _warn_of_unknown(lm: Path, references: Sequence[Sequence[str]]) -> None:
    """Log if many words of the references are unknown to the LM of the search."""
    from attlm_fairseq.scoring.ngrams.kenlm_files import load_kenlm

    model, count = load_kenlm(lm), OOVCount(lm.name)
    count.add(references, ([word not in model for word in words] for words in references))
    if warning := count.warning():
        note(warning)


def write_correction_pairs(lists: Lists, refs: References | None, folder: FilePath) -> dict[str, int]:
    """Write hypothesis-reference pairs for training a neural corrector. See ``pairs.write_pairs``.

    Args:
        lists: n-best lists: NbestLists, lists of strings, or a file.
        refs: references, as in ``learn_corrections``.
        folder: a new folder for ``train.hyp``, ``train.ref``, ``valid.hyp`` and ``valid.ref``.

    Returns:
        The number of pairs in ``train`` and in ``valid``.

    Raises:
        InputError: the input is unreadable or wrong, there are fewer than 20 utterances, or the folder has files already.
    """
    return write_pairs(with_references(lists_of(lists), refs), Path(fspath(folder)))


def evaluate_corrections(
    lists: Lists,
    refs: References | None = None,
    table: FilePath | None = None,
    *,
    folds: int = FOLDS,
    folds_by: str | ContextSpec | None = None,
    language: str = LANGUAGE,
    text: str | TextPipeline = "",
) -> Usage:
    """Count how often each correction changes a 1-best hypothesis, and whether the change was right or wrong.

    Args:
        lists: n-best lists: NbestLists, lists of strings, or a file.
        refs: references, as in ``learn_corrections``.
        table: corrections to measure. None, or a table learned from most of these lists: each fold is corrected with
            what the other folds teach.
        folds: number of folds.
        folds_by: which lists stay in one fold, see ``TuneOptions``. None: those of the same utterance.
        language: language of spelled-out numbers, if there is no table.
        text: text steps after which words are compared, if there is no table.

    Returns:
        How often each correction fired, was right and was wrong.

    Raises:
        InputError: the input is unreadable or wrong, ``text`` or ``language`` is given next to a table, or there are fewer
            utterances than folds.
    """
    require_whole_number("folds", folds, 2)
    steps = check_steps(text_pipeline(text))
    require_type("table", table, (str, os.PathLike, NoneType), "the path of a table, as Corrections.save() writes it")
    path = None if table is None else Path(table)
    loaded = None if path is None else Corrections.load(path)
    read = with_references(lists_of(lists), refs)
    warn_before_learning(read, steps if loaded is None else loaded.text)
    found = Usage()
    teach = partial(learn, language=language, text=steps)
    if path is not None and loaded is not None:
        if steps.steps or language != LANGUAGE:
            raise InputError("text and language are those of the table: leave them out, or the table")
        spec = CandidateSpec(path)
        warn_of_replaced_lm(spec, spec.digests())
        if not loaded.needs_folds(path, read):
            if folds_by is not None or folds != FOLDS:
                note(f"note: --folds and --folds-by have no effect: {path} was not learned from these lists")
            for nbest in read:
                found.add(nbest, loaded)
            return found
        teach = partial(loaded.learned_again, table=path)
    else:
        check_language(language)
    fold_of = folds_of(read, folds, groups=groups_of(read, folds_by), text=steps if loaded is None else loaded.text)
    if path is not None and loaded is not None:
        note_jackknifed(path, loaded, read, fold_of)
    for _, others, held_out in splits(fold_of):
        corrections = teach([read[i] for i in others])
        for i in held_out:
            found.add(read[i], corrections)
    return found


@dataclass(frozen=True)
class JackknifeOptions:
    """What to learn for each fold from the references of the other folds.

    Attributes:
        folds: number of folds.
        folds_by: which lists stay in one fold, see ``TuneOptions``. None: those of the same utterance.
        ngram: name of a KenLM 4-gram estimated for each fold; None or an empty name estimates none. As each LM it adds the
            scores NAME, NAME_oov and NAME_tokens.
        corrections: maximum number of candidates that corrections add to each list; None learns no corrections.
        language: language of spelled-out numbers, as a num2words code.
        text: text steps of the references that are learned from, and of the texts that all LMs score.
        texts: a new folder for ``fold0.txt``, ``fold1.txt``, ..: the references of the other folds after the steps, for training LMs.
    """

    folds: int = FOLDS
    folds_by: str | ContextSpec | None = None
    ngram: str | None = "ngram"
    corrections: int | None = None
    language: str = LANGUAGE
    text: str | TextPipeline = ""
    texts: FilePath | None = None

    def __post_init__(self) -> None:
        require_whole_number("folds", self.folds, 2)
        if self.corrections is not None:
            require_whole_number("corrections", self.corrections)
        object.__setattr__(self, "ngram", self.ngram or None)


def jackknife(
    lists: Lists,
    refs: References | None = None,
    lms: Mapping[str, Sequence[LM]] | None = None,
    options: JackknifeOptions | None = None,
) -> list[NbestList]:
    """Score each list with LMs that were trained without its references.

    Args:
        lists: n-best lists: NbestLists, lists of strings, or a file.
        refs: references, as in ``learn_corrections``.
        lms: further LMs by name: one per fold, trained without the references of that fold.
        options: what to learn for each fold.

    Returns:
        The lists in input order. The LM scores (natural log, summed over words and sentence end) join the lists' own
        scores.

    Raises:
        InputError: the input is unreadable or wrong, there is nothing to learn, there are fewer utterances than folds, or an
            LM does not have one file per fold or has the name of the 4-gram.
    """
    options = JackknifeOptions() if options is None else options
    require_type("value of options", options, JackknifeOptions, "JackknifeOptions(..)")
    folds, ngram, corrections = options.folds, options.ngram, options.corrections
    if ngram is None and corrections is None and not lms and options.texts is None:
        raise InputError("there is nothing to learn: give --ngram a name, --corrections, --lm or --texts")
    if corrections is not None:
        check_language(options.language)
    steps = check_steps(text_pipeline(options.text))
    if ngram is not None and ngram in (lms or {}):
        raise InputError(f"the LM {ngram!r} has the name of the 4-gram that is estimated: give --ngram another name, or '' for none")
    read = with_references(lists_of(lists), refs)
    for name, of_folds in (lms or {}).items():
        if len(of_folds) != folds:
            raise InputError(f"the LM {name!r} has {len(of_folds)} files, expected one for each of the {folds} folds, in their order")
    fold_of = folds_of(read, folds, groups=groups_of(read, options.folds_by), text=steps)
    numbers = iter(range(folds))

    def learned(others: list[NbestList]) -> Callable[[list[NbestList]], list[NbestList]]:
        return partial(_of_fold, others=others, fold=next(numbers))

    def _of_fold(held_out: list[NbestList], others: list[NbestList], fold: int) -> list[NbestList]:
        expander = learn(others, language=options.language, text=steps) if corrections is not None else None
        with tempfile.TemporaryDirectory(prefix="attlm-jackknife-") as folder:
            of_fold: dict[str, LM] = {name: given[fold] for name, given in (lms or {}).items()}
            if ngram is not None:
                of_fold[ngram] = Path(folder) / "ngram.arpa"
                estimate_search_lm([steps.prepared(text) for nbest in others for text in nbest.references], Path(folder) / "ngram.arpa")
            expanded = list(expander.expand_all(held_out, corrections or 0)) if expander else held_out
            run = run_config(lms=of_fold, text=steps if steps.steps else None).in_memory()
            for lm, pipeline in zip(run.scored, run.texts.values(), strict=True):
                if lm.name != ngram:
                    references = [text for nbest in held_out for text in nbest.references]
                    warn_of_seen_texts(lm, lm.loaded, pipeline, references, f"the references of fold {fold}", IN_ORDER)
            return _scored(expanded, run)

    if options.texts is not None:
        refuse_filled(fspath(options.texts))
    found = by_folds(read, fold_of, learned)
    if options.texts is not None:  # last, so that a command that fails leaves nothing in the way of the next one
        _write_texts(read, list(splits(fold_of)), options.texts, steps)
    return found


def _scored(lists: Sequence[NbestList], run: RunConfig) -> list[NbestList]:
    """Return the lists with the run's LM scores and LM features added to their own scores."""
    if not run.lms:
        return list(lists)
    features = [name for lm in run.scored for name in (f"{lm.name}_oov", f"{lm.name}_tokens")]
    with scoring(run, [*dict.fromkeys([*features, *default_features(run.feature_texts)])]) as rescorer:
        scored = list(rescorer.score(lists))
    return [
        replace(nbest, hypotheses=[replace(one, scores=one.scores | one.lm_scores, lm_scores={}) for one in nbest.hypotheses])
        for nbest in scored
    ]


def _write_texts(
    lists: Sequence[NbestList], folds: Sequence[tuple[int, list[int], list[int]]], folder: FilePath, steps: TextPipeline
) -> None:
    with whole_folder(fspath(folder)) as place:
        for fold, others, _ in folds:
            lines = (" ".join(steps.words(text)) for i in others for text in lists[i].references)
            (place / f"fold{fold}.txt").write_text("".join(f"{line}\n" for line in lines if line), encoding="utf-8")
