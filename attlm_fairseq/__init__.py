"""Memory-augmented recurrent language models for fairseq, and n-best rescoring with them.

    import attlm_fairseq as attlm

    tuned = attlm.tune("dev.json", lms={"lm": "lm.pt", "ngram": "lm.arpa"})
    attlm.rescore("test.json", config=tuned.config)

Importing the package is cheap. The first use of a function imports its module; the first neural LM imports torch.
The models and tasks register themselves only if fairseq is already loaded, as in fairseq's own commands with
``--user-dir attlm_fairseq``. See ``attlm_fairseq.plugin``.
"""

import importlib
import sys
from typing import TYPE_CHECKING

from attlm_fairseq.version import __version__ as __version__

if TYPE_CHECKING:  # for type checkers and editors; at run time __getattr__ resolves the same names from _MODULES
    from attlm_fairseq.attention.output import AttentionOutput as AttentionOutput
    from attlm_fairseq.cloze.blanking import BlankingOptions as BlankingOptions
    from attlm_fairseq.cloze.questions import ClozeQuestion as ClozeQuestion
    from attlm_fairseq.decoding.sampling import Sample as Sample
    from attlm_fairseq.decoding.sampling_options import SamplingOptions as SamplingOptions
    from attlm_fairseq.errors import InputError as InputError
    from attlm_fairseq.nbest.corrections import Corrections as Corrections
    from attlm_fairseq.nbest.corrections.usage import Usage as Usage
    from attlm_fairseq.nbest.decision.decision import Decision as Decision
    from attlm_fairseq.nbest.from_decoders import from_beams as from_beams
    from attlm_fairseq.nbest.from_decoders import from_ctranslate2 as from_ctranslate2
    from attlm_fairseq.nbest.from_decoders import from_generate as from_generate
    from attlm_fairseq.nbest.from_decoders import from_nemo as from_nemo
    from attlm_fairseq.nbest.from_decoders import from_openai as from_openai
    from attlm_fairseq.nbest.from_decoders import from_sherpa as from_sherpa
    from attlm_fairseq.nbest.from_decoders import from_vllm as from_vllm
    from attlm_fairseq.nbest.nbest_list import Hypothesis as Hypothesis
    from attlm_fairseq.nbest.nbest_list import NbestList as NbestList
    from attlm_fairseq.nbest.nbest_list import Sausage as Sausage
    from attlm_fairseq.nbest.nbest_list import WordShare as WordShare
    from attlm_fairseq.nbest.run.config import RunConfig as RunConfig
    from attlm_fairseq.nbest.statistics.bootstrap import Interval as Interval
    from attlm_fairseq.nbest.statistics.bootstrap import PairedComparison as PairedComparison
    from attlm_fairseq.nbest.statistics.evaluation import Row as Row
    from attlm_fairseq.nbest.statistics.table import ErrorCounts as ErrorCounts
    from attlm_fairseq.scoring.compute import DeviceConfig as DeviceConfig
    from attlm_fairseq.scoring.lm_spec import LMSpec as LMSpec
    from attlm_fairseq.scoring.ngrams.ngram_estimation import NgramOptions as NgramOptions
    from attlm_fairseq.scoring.ngrams.ngram_estimation import NgramReport as NgramReport
    from attlm_fairseq.scoring.scorer import Scorer as Scorer
    from attlm_fairseq.scoring.scorer import SentenceScore as SentenceScore
    from attlm_fairseq.scoring.text_file import ScoredLine as ScoredLine
    from attlm_fairseq.scoring.text_file import ScoredText as ScoredText
    from attlm_fairseq.verbs.attention import show_attention as show_attention
    from attlm_fairseq.verbs.cloze import ClozeAnswers as ClozeAnswers
    from attlm_fairseq.verbs.cloze import answer_cloze as answer_cloze
    from attlm_fairseq.verbs.cloze import make_cloze as make_cloze
    from attlm_fairseq.verbs.combine import combine as combine
    from attlm_fairseq.verbs.compare_lms import LMComparison as LMComparison
    from attlm_fairseq.verbs.compare_lms import LMRow as LMRow
    from attlm_fairseq.verbs.compare_lms import compare_lms as compare_lms
    from attlm_fairseq.verbs.configuration import LM as LM
    from attlm_fairseq.verbs.configuration import make_metric as make_metric
    from attlm_fairseq.verbs.configuration import run_config as run_config
    from attlm_fairseq.verbs.conversion_losses import Converted as Converted
    from attlm_fairseq.verbs.convert import convert as convert
    from attlm_fairseq.verbs.corrections import JackknifeOptions as JackknifeOptions
    from attlm_fairseq.verbs.corrections import evaluate_corrections as evaluate_corrections
    from attlm_fairseq.verbs.corrections import jackknife as jackknife
    from attlm_fairseq.verbs.corrections import learn_corrections as learn_corrections
    from attlm_fairseq.verbs.corrections import write_correction_pairs as write_correction_pairs
    from attlm_fairseq.verbs.evaluate import Evaluation as Evaluation
    from attlm_fairseq.verbs.evaluate import evaluate as evaluate
    from attlm_fairseq.verbs.export import export_model as export_model
    from attlm_fairseq.verbs.fit import Fitted as Fitted
    from attlm_fairseq.verbs.fit import FittedRow as FittedRow
    from attlm_fairseq.verbs.fit import fit_context as fit_context
    from attlm_fairseq.verbs.lattices import lists_from_lattices as lists_from_lattices
    from attlm_fairseq.verbs.lists import NbestFile as NbestFile
    from attlm_fairseq.verbs.mixture import Mixture as Mixture
    from attlm_fairseq.verbs.mixture import estimate_mixture as estimate_mixture
    from attlm_fairseq.verbs.nbest_files import read_nbest as read_nbest
    from attlm_fairseq.verbs.nbest_files import write_nbest as write_nbest
    from attlm_fairseq.verbs.ngram import estimate_ngram as estimate_ngram
    from attlm_fairseq.verbs.references import ReferenceFiles as ReferenceFiles
    from attlm_fairseq.verbs.rescore import Rescored as Rescored
    from attlm_fairseq.verbs.rescore import RescoreOutput as RescoreOutput
    from attlm_fairseq.verbs.rescore import rescore as rescore
    from attlm_fairseq.verbs.sample import sample as sample
    from attlm_fairseq.verbs.shards import Shard as Shard
    from attlm_fairseq.verbs.shards import rescore_shards as rescore_shards
    from attlm_fairseq.verbs.text import Perplexity as Perplexity
    from attlm_fairseq.verbs.text import load_lm as load_lm
    from attlm_fairseq.verbs.text import perplexity as perplexity
    from attlm_fairseq.verbs.text import score_text as score_text
    from attlm_fairseq.verbs.tune import tune as tune
    from attlm_fairseq.verbs.tune_options import TuneOptions as TuneOptions
    from attlm_fairseq.verbs.tuned import NoGainError as NoGainError
    from attlm_fairseq.verbs.tuned import Tuned as Tuned

_MODULES = {
    "answer_cloze": "verbs.cloze",
    "AttentionOutput": "attention.output",
    "BlankingOptions": "cloze.blanking",
    "ClozeAnswers": "verbs.cloze",
    "ClozeQuestion": "cloze.questions",
    "combine": "verbs.combine",
    "compare_lms": "verbs.compare_lms",
    "convert": "verbs.convert",
    "Converted": "verbs.conversion_losses",
    "Corrections": "nbest.corrections",
    "Decision": "nbest.decision.decision",
    "DeviceConfig": "scoring.compute",
    "ErrorCounts": "nbest.statistics.table",
    "estimate_mixture": "verbs.mixture",
    "estimate_ngram": "verbs.ngram",
    "evaluate": "verbs.evaluate",
    "evaluate_corrections": "verbs.corrections",
    "Evaluation": "verbs.evaluate",
    "export_model": "verbs.export",
    "fit_context": "verbs.fit",
    "Fitted": "verbs.fit",
    "FittedRow": "verbs.fit",
    "from_beams": "nbest.from_decoders",
    "from_ctranslate2": "nbest.from_decoders",
    "from_generate": "nbest.from_decoders",
    "from_nemo": "nbest.from_decoders",
    "from_openai": "nbest.from_decoders",
    "from_sherpa": "nbest.from_decoders",
    "from_vllm": "nbest.from_decoders",
    "Hypothesis": "nbest.nbest_list",
    "InputError": "errors",
    "Interval": "nbest.statistics.bootstrap",
    "jackknife": "verbs.corrections",
    "JackknifeOptions": "verbs.corrections",
    "learn_corrections": "verbs.corrections",
    "lists_from_lattices": "verbs.lattices",
    "LM": "verbs.configuration",
    "LMComparison": "verbs.compare_lms",
    "LMRow": "verbs.compare_lms",
    "LMSpec": "scoring.lm_spec",
    "load_lm": "verbs.text",
    "make_cloze": "verbs.cloze",
    "make_metric": "verbs.configuration",
    "Mixture": "verbs.mixture",
    "NbestFile": "verbs.lists",
    "NbestList": "nbest.nbest_list",
    "NgramOptions": "scoring.ngrams.ngram_estimation",
    "NgramReport": "scoring.ngrams.ngram_estimation",
    "NoGainError": "verbs.tuned",
    "PairedComparison": "nbest.statistics.bootstrap",
    "perplexity": "verbs.text",
    "Perplexity": "verbs.text",
    "read_nbest": "verbs.nbest_files",
    "ReferenceFiles": "verbs.references",
    "rescore": "verbs.rescore",
    "rescore_shards": "verbs.shards",
    "Rescored": "verbs.rescore",
    "RescoreOutput": "verbs.rescore",
    "Row": "nbest.statistics.evaluation",
    "run_config": "verbs.configuration",
    "RunConfig": "nbest.run.config",
    "sample": "verbs.sample",
    "Sample": "decoding.sampling",
    "SamplingOptions": "decoding.sampling_options",
    "Sausage": "nbest.nbest_list",
    "score_text": "verbs.text",
    "ScoredLine": "scoring.text_file",
    "ScoredText": "scoring.text_file",
    "Scorer": "scoring.scorer",
    "SentenceScore": "scoring.scorer",
    "Shard": "verbs.shards",
    "show_attention": "verbs.attention",
    "tune": "verbs.tune",
    "Tuned": "verbs.tuned",
    "TuneOptions": "verbs.tune_options",
    "Usage": "nbest.corrections.usage",
    "WordShare": "nbest.nbest_list",
    "write_correction_pairs": "verbs.corrections",
    "write_nbest": "verbs.nbest_files",
}
__all__ = sorted(_MODULES)


if not TYPE_CHECKING:  # else a type checker would take every name for one of the package's

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


if sys.modules.get("fairseq"):
    from attlm_fairseq.plugin import register

    register()
