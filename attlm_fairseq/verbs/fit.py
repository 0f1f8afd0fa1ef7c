"""Fit an LM's softmax temperature, caches and dynamic evaluation on a text that it was not trained on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from attlm_fairseq.errors import InputError, require_whole_number
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.files.writing import is_stream, shown_output
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import context_to_write, note_kept_context, write_config
from attlm_fairseq.scoring.context.cache import NeuralCache, UnigramCache
from attlm_fairseq.scoring.context.cache_search import best_neural, best_unigram, mixing
from attlm_fairseq.scoring.context.conversations import ContextSpec
from attlm_fairseq.scoring.context.document_events import perplexity_of, read_documents
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.scoring.scorer import Scorer
from attlm_fairseq.scoring.text_file import read_lines
from attlm_fairseq.text import TextPipeline
from attlm_fairseq.verbs.arguments import FilePath, no_sentences, text_lines, text_name
from attlm_fairseq.verbs.configuration import LM, run_config
from attlm_fairseq.verbs.exposure import warn_of_seen_texts
from attlm_fairseq.verbs.run import require_lms
from attlm_fairseq.verbs.text import NO_PERPLEXITY, tell_notes
from attlm_fairseq.version import __version__

if TYPE_CHECKING:
    from attlm_fairseq.scoring.neural.dynamic_evaluation import Adaptation, AdaptingScorer
    from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer

# by the name of a setting: the attribute of LMSpec that holds it
SETTINGS = {"temperature": "temperature", "neural-cache": "neural_cache", "unigram-cache": "unigram_cache", "adaptation": "adapt"}
FINDABLE = tuple(SETTINGS)
TEMPERATURES = (0.7, 1.4)  # search bounds
RATES = (0.0003, 0.001, 0.003)
PULLS = (0.003, 0.01, 0.03, 0.1)  # decays towards the trained parameters
FIRST_PULL = 0.01
FINER = (0.6, 1.0, 1.7)  # last search of the rate: around the one found
CLEARLY_BETTER = 0.99  # times a perplexity
SAMPLE_LINES = 400
STRETCH_LINES = 50
WHOLE_TEXT = ContextSpec("all")  # what is fitted on, unless a context is given


@dataclass(frozen=True)
class FittedRow:
    """One setting of an LM.

    Attributes:
        lm: the LM's name.
        setting: what was fitted, with the values found.
        ppl: the perplexity with it, over the words and sentence ends of the lines that the setting names, else of all lines read.
    """

    lm: str
    setting: str
    ppl: float


@dataclass(frozen=True)
class Fitted:
    """The result of ``fit_context``; ``print`` shows its table.

    Attributes:
        config: the LMs with their temperatures and caches.
        adaptations: dynamic-evaluation settings by LM name. They take effect only after ``save`` has written them.
        rows: the perplexity of each LM with each setting that was found, in the order of the search.
        record: text, number of lines, perplexities and version, to reproduce the result.
    """

    config: RunConfig
    rows: list[FittedRow]
    record: dict[str, Any] = field(repr=False)
    adaptations: dict[str, Adaptation] = field(repr=False)

    def __str__(self) -> str:
        """Return the perplexity of each LM with each setting, joined by tabs."""
        return "\n".join(["lm\tsetting\tppl", *(f"{row.lm}\t{row.setting}\t{row.ppl:.4f}" for row in self.rows)])

    def save(self, path: FilePath = "attlm.toml", command: str | None = None) -> None:
        """Write the fitted LMs as an ``attlm.toml``, and each adaptation next to it: ``attlm.NAME.adaptation``.

        Raises:
            InputError: a file cannot be written, the existing file is not an ``attlm.toml``, or the name of a file in
                it is not UTF-8.
        """
        for name, adaptation in self.adaptations.items():
            from attlm_fairseq.scoring.neural.dynamic_evaluation import write_adaptation

            where = _adaptation_path(path, name)
            write_adaptation(where, adaptation)
            note(f"wrote {where.name if is_stream(str(path)) else Path(path).with_name(where.name)}")
        self._write(path, command)

    def _write(self, path: FilePath, command: str | None) -> None:
        lms = tuple(replace(lm, adapt=_adaptation_path(path, lm.name)) if lm.name in self.adaptations else lm for lm in self.config.lms)
        write_config(Path(path), replace(self.config, lms=lms), self.record, "fitting", command)
        note(f"wrote {shown_output(path)}")


def fit_context(
    text: FilePath | Iterable[str],
    lms: Mapping[str, LM] | None = None,
    *,
    config: RunConfig | FilePath | None = None,
    find: Sequence[str] = ("temperature", "neural-cache"),
    lines: int | None = None,
) -> Fitted:
    """Fit the temperature and the caches that make a text most probable, for every LM that is not a mixture.

    Sizes, thetas and decays are searched on a grid, and each setting gets its best cache weight. For the neural cache
    the search runs over theta at a middle size, then over the size, then over theta again. Caches are fitted on the LM
    with its temperature, its adaptation and its other cache. A cache or an adaptation that does not help is left out.
    What is not to be found stays as it is in the configuration. Temperatures and adaptations, and caches of an LM that
    adapts, are fitted on at most 400 lines from everywhere in the text.

    Args:
        text: a file or lines, one sentence each, that no LM was trained on.
        lms: LMs by name, as files or objects.
        config: LMs, text steps and context: a RunConfig or the path of an ``attlm.toml``. Without a context the text is
            one document, and the result has the context ``all`` if an LM has a cache or an adaptation, else none.
        find: what to fit: ``temperature``, ``neural-cache``, ``unigram-cache``, ``adaptation``.
        lines: maximum number of lines to use; None: all.

    Returns:
        The LMs with their temperatures, caches and adaptations, and the perplexity of each setting.

    Raises:
        InputError: there is no LM, the text has too few lines (an adaptation needs 2), an unknown name in ``find``, or no
            LM supports what is to be fitted.
    """
    if lines is not None:
        require_whole_number("lines", lines, 1)
    given = run_config(config, lms=lms)
    require_lms(given)
    find = [find] if isinstance(find, str) else find
    if unknown := [name for name in find if name not in FINDABLE]:
        raise InputError(f"{unknown[0]!r} cannot be found: expected {', '.join(FINDABLE)}")
    run = replace(given, lms=tuple(lm.unpacked() for lm in given.lms), context=given.context or WHOLE_TEXT)
    source = text_lines(text)
    read = list(islice(read_lines(source) if isinstance(source, TextSource) else source, lines))
    if not any(line.strip() for line in read) and (not read or run.context == ContextSpec("blank")):
        raise no_sentences(text)
    fitting = _Fitting(run, read, find)
    found = tuple(lm if lm.mixture else fitting.fitted(lm) for lm in run.lms)
    reaches_back = fitting.adaptations or any(lm.neural_cache or lm.unigram_cache or lm.adapt for lm in found)
    if any(given.weights.values()) and (fitting.adaptations or found != run.lms):
        note("note: the weights were tuned without these settings: tune them again")
    written = run if reaches_back else given
    note_kept_context(written)
    if given.context is None and reaches_back and context_to_write(written) == WHOLE_TEXT:
        note("context: all. Every later command takes its text, or all its lists, as one conversation unless --context says otherwise")
    record = {
        "text": text_name(text),
        "lines": len(read),
        "ppl": {f"{row.lm} {row.setting}": round(row.ppl, 4) for row in fitting.rows},
        "attlm": __version__,
    }
    found_run = replace(run, lms=found, context=context_to_write(written))
    return Fitted(found_run, fitting.rows, record, fitting.adaptations)


@dataclass
class _Fitting:
    """What is found for the LMs of a run on the lines of a text."""

    run: RunConfig
    lines: list[str]
    find: Sequence[str]
    rows: list[FittedRow] = field(default_factory=list)
    adaptations: dict[str, Adaptation] = field(default_factory=dict)

    @cached_property
    def stretches(self) -> list[list[str]]:
        """At most 400 lines from everywhere in the text: stretches of up to 50, an even number of them."""
        count = 2 * max(1, round(min(len(self.lines), SAMPLE_LINES) / STRETCH_LINES / 2))
        length = math.ceil(SAMPLE_LINES / count)
        begins = [place * len(self.lines) // count for place in range(count + 1)]
        return [self.lines[begin : min(begin + length, end)] for begin, end in pairwise(begins)]

    @property
    def sample(self) -> list[str]:
        return self.lines if len(self.lines) <= SAMPLE_LINES else self.joined(self.stretches)

    def counted(self, stretches: Sequence[list[str]]) -> int:
        """Return how many lines of stretches are scored: blank ones that separate documents are not."""
        assert self.run.context is not None, "fit_context gives one"
        return sum(bool(line.strip()) or self.run.context.kind != "blank" for lines in stretches for line in lines)

    def joined(self, stretches: Sequence[list[str]]) -> list[str]:
        """Return stretches as one text. Where blank lines separate documents, no document goes on in another stretch."""
        assert self.run.context is not None, "fit_context gives one"
        between = [""] if self.run.context.kind == "blank" else []
        return [line for stretch in stretches for line in (*stretch, *between)]

    def fitted(self, lm: LMSpec) -> LMSpec:
        """Return the LM with what is found for it. Temperature, adaptation, neural and unigram cache are found in this order."""
        assert self.run.context is not None, "fit_context gives one"
        text, find = lm.text or self.run.text, self.findable_for(lm)
        if not find:
            scorer = replace(lm, adapt=None, neural_cache=None, unigram_cache=None).load(self.run.device)
            if scorer.scores_end:
                self.add(
                    lm, "alone", perplexity_of(list(read_documents(scorer, lm.oov, text, self.run.context, self.lines, features=False)))
                )
            return lm
        unset: dict[str, Any] = {SETTINGS[name]: None for name in find}
        spec = replace(lm, **unset)
        plain = replace(spec, adapt=None, neural_cache=None, unigram_cache=None)
        if "temperature" in find:
            plain = replace(plain, temperature=_best_temperature(plain, self.run, text, self.sample))
            spec = replace(spec, temperature=plain.temperature)
            if spec.adapt and spec.temperature != lm.temperature:
                spec = replace(spec, adapt=None)
                note(f"{lm.name}: adapt is removed, because the temperature has changed: run `attlm fit --find adaptation` for it")
        caches = {"neural-cache", "unigram-cache"} & {*find}
        compares = bool(caches) and ("neural-cache" in find or spec.neural_cache is not None)
        read = partial(read_documents, oov=lm.oov, text=text, context=self.run.context, features=compares)
        scorer = plain.load(self.run.device)
        documents = list(read(scorer, lines=self.lines))
        tell_notes([scorer])
        warn_of_seen_texts(plain, scorer, text, self.sample, "the text", "What is found is for text that it knows: use other text")
        self.add(lm, f"temperature {spec.temperature:g}" if spec.temperature else "alone", perplexity_of(documents))
        if plain.context_sentences is None and scorer.signature().get("kind") == "neural":
            self._compare_with_single_sentences((lm.temperature, plain.temperature), plain, scorer, text)
        adapting: Scorer | None = replace(plain, adapt=spec.adapt).load(self.run.device) if spec.adapt else None
        if "adaptation" in find and (found := _best_adaptation(plain, self, text)):
            self.adaptations[lm.name], adapting = found.adaptation, found
        adapted = ""
        if adapting and caches:
            documents = list(read(adapting, lines=self.sample))
            adapted = f"adaptation, on {self.counted(self.stretches)} lines"
            self.add(lm, adapted, perplexity_of(documents))
        if "neural-cache" in find:
            neural, ppl = best_neural(documents, afterwards=mixing(documents, spec.unigram_cache))
            self.add(lm, _joined(adapted, neural=neural, unigram=spec.unigram_cache), ppl)
            spec = replace(spec, neural_cache=neural if neural.weight else None)
        if "unigram-cache" in find:
            unigram, ppl = best_unigram(documents, before=mixing(documents, spec.neural_cache))
            self.add(lm, _joined(adapted, neural=spec.neural_cache, unigram=unigram), ppl)
            spec = replace(spec, unigram_cache=unigram if unigram.weight else None)
        return spec

    def _compare_with_single_sentences(
        self, temperatures: tuple[float | None, ...], lm: LMSpec, scorer: Scorer, text: TextPipeline
    ) -> None:
        """Log if an LM predicts the sample better without the state of earlier sentences, which ``scorer`` carries, at one temperature.

        One that was trained on sentences does.
        """
        assert self.run.context is not None, "fit_context gives one"
        single = [replace(lm, context_sentences=0, temperature=one).load(self.run.device) for one in dict.fromkeys(temperatures)]
        of_sample = partial(read_documents, oov=lm.oov, text=text, context=self.run.context, lines=self.sample, features=False)
        carried, *of_single = (perplexity_of(list(of_sample(one))) for one in (scorer, *single))
        alone = min(of_single)
        if alone < CLEARLY_BETTER * carried:
            note(
                f"WARNING: {lm.name} is better on each sentence by itself, perplexity {alone:.2f}, than with the state of those before, "
                f"{carried:.2f} (on {self.counted([self.sample])} lines): fit with --context-sentences 0, and compare"
            )

    @cached_property
    def findable(self) -> dict[str, list[str]]:
        """What each LM can have, by name: a cache needs the score of the sentence end, the rest a neural LM of this package."""
        found = {}
        for lm in self.run.lms:
            if not lm.mixture:
                scorer = replace(lm, neural_cache=None, unigram_cache=None, adapt=None, temperature=None).load(self.run.device)
                neural = scorer.signature().get("kind") == "neural"
                found[lm.name] = [name for name in FINDABLE if (scorer.scores_end if name == "unigram-cache" else neural)]
        return found

    def findable_for(self, lm: LMSpec) -> list[str]:
        """Return what is to be found for the LM: not what only other LMs of the run can have."""
        if lm.kenlm is not None and "unigram-cache" not in self.find and len(self.run.lms) == 1:
            what = f"{' and '.join(self.find)} {'is' if len(self.find) == 1 else 'are'}"
            raise InputError(f"{lm.name}: {what} for this package's neural LMs; it can have --find unigram-cache")
        if len(self.run.lms) == 1 or not any({*self.find} & {*able} for able in self.findable.values()):
            return [*self.find]  # loading or scoring says what is wrong
        able = self.findable[lm.name]
        left_out = [name for name in self.find if name not in able]
        if neural := [name for name in left_out if name != "unigram-cache"]:
            note(f"{lm.name}: no {', '.join(neural)}, which is for this package's neural LMs")
        if "unigram-cache" in left_out:
            note(f"{lm.name}: no unigram-cache, which is for LMs that score the sentence end")
        return [name for name in self.find if name in able]

    def add(self, lm: LMSpec, setting: str, ppl: float) -> None:
        if not 0 < ppl < math.inf:
            raise InputError(f"{lm.name}: its perplexity ({setting}) is {ppl:g}, expected a finite number above 0: {NO_PERPLEXITY}")
        self.rows.append(FittedRow(lm.name, setting, ppl))


def _joined(adapted: str, neural: NeuralCache | None, unigram: UnigramCache | None) -> str:
    """Return the name of a setting in the table."""
    caches = (f"neural cache {neural}" if neural else "", f"unigram cache {unigram}" if unigram else "")
    return ", ".join(filter(None, (adapted, *caches)))


def _best_adaptation(lm: LMSpec, fitting: _Fitting, text: TextPipeline) -> AdaptingScorer | None:
    """Find gradient scales on half of the sample's stretches, then the best learning rate and decay on the others.

    On the lines of the scales, no gradient is much larger than its scale, so that a rate may look good there and fail on
    other text. Returns None if adaptation does not help.
    """
    from attlm_fairseq.scoring.neural.dynamic_evaluation import Adaptation, AdaptingScorer, check_adaptable, gradient_scales, weights_digest

    if lm.context_sentences:
        raise InputError(f"{lm.name}: dynamic evaluation goes with the state of all sentences, or of none (0)")
    run = fitting.run
    carries, context = lm.context_sentences is None, run.context or ContextSpec("all")
    scorer = replace(lm, neural_cache=None, unigram_cache=None, context_sentences=None, adapt=None).load(run.device)
    check_adaptable(scorer)
    trained = cast("NeuralScorer", scorer)
    of_scales, searched = fitting.joined(fitting.stretches[::2]), fitting.joined(fitting.stretches[1::2])
    documents = [[text.words(line.text) for line in document] for group in context.documents(of_scales) for document in group]
    if not any(documents) or not any(list(context.documents(searched))):
        raise InputError(f"{lm.name}: dynamic evaluation needs at least 2 lines: one half for gradients, the other for rate and decay")
    scales = gradient_scales(trained, documents, carries)

    @cache
    def ppl(rate: float, decay: float) -> float:
        adapting = AdaptingScorer(trained, Adaptation(rate, decay, scales), carries)
        return perplexity_of(list(read_documents(adapting, lm.oov, text, context, searched, features=False)))

    rate = min((0.0, *RATES), key=lambda rate: ppl(rate, FIRST_PULL))
    read = f"on {fitting.counted(fitting.stretches[1::2])} lines"
    fitting.add(lm, f"alone, {read}", ppl(0.0, FIRST_PULL))
    if not rate:
        note(f"{lm.name}: dynamic evaluation does not help and is left out")
        return None
    decay = min(PULLS, key=lambda decay: ppl(rate, decay))
    rate = min((float(f"{rate * factor:.2g}") for factor in FINER), key=lambda rate: ppl(rate, decay))
    fitting.add(lm, f"adaptation {rate:g}:{decay:g}, {read}", ppl(rate, decay))
    return AdaptingScorer(trained, Adaptation(rate, decay, scales, weights_digest(trained)), carries)


def _adaptation_path(path: FilePath, name: str) -> Path:
    """Return where the adaptation of an LM goes: its name begins as that of the configuration, so that each has its own."""
    if is_stream(str(path)):
        return Path(f"{name}.adaptation").absolute()
    config = Path(path).absolute()
    return config.with_name(f"{config.stem}.{name}.adaptation")


def _best_temperature(spec: LMSpec, run: RunConfig, text: TextPipeline, lines: list[str]) -> float:
    from scipy.optimize import minimize_scalar

    assert run.context is not None, "fit_context gives one"
    context = run.context

    def loss(temperature: float) -> float:
        lm = replace(spec, temperature=temperature).load(run.device)
        return math.log(perplexity_of(list(read_documents(lm, spec.oov, text, context, lines, features=False))))

    best = minimize_scalar(loss, bounds=TEMPERATURES, method="bounded", options={"xatol": 0.01})
    return round(float(best.x), 3)
