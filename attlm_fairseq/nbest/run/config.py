"""``attlm.toml``: the LMs of a rescoring run, the text steps before them and the weights.

    [lm.attentive]                  # a neural LM: one checkpoint, or several as an ensemble
    checkpoint = "checkpoints/checkpoint_best.pt"
    dict = "data-bin/dict.txt"      # where it does not lie beside the checkpoint

    [lm.ngram]
    kenlm = "lm.arpa"

    oov = "spread:100000"           # what an unknown word costs: unk (default), penalty:LOGPROB, spread:TYPES
    text = { steps = ["lowercase"] }  # instead of the steps of [text]

    [lm.mix]                        # linear over words; its members then have no score of their own
    mixture = { attentive = 0.6, ngram = 0.4 }

    [text]                          # in this order; `tokenize = "en"` and `lowercase = true` are short for these two
    steps = ["unicode:nfkc", "tokenize:en", "lowercase"]

    [weights]                       # of any score in the list, any LM, `words` and `rank`
    attentive = 0.8

    [decision]                      # how totals decide: max (default), mbr-wer, mbr-cer, mbr-bleu, mbr-chrf, mbr-ter, consensus
    rule = "mbr-wer"
    scale = 1.5                     # of the posteriors, softmax(scale * total)
    text = { steps = ["join-subwords:bpe"] }  # before losses and votes
    tokenize = "zh"                 # sacreBLEU's tokenizer in the loss of mbr-bleu; default: none
    scales = { consensus = 0.7 }    # of other rules, with these weights

Paths are relative to the file. `attlm tune` and `attlm mix` write it: then it holds what that run used and found, and
how in ``[tuning]`` and ``[mixing]``. What stays the same stays as it was written, comments included. Any other table is an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attlm_fairseq.errors import InputError
from attlm_fairseq.files import is_stream, whole_file
from attlm_fairseq.nbest.decision.decision import RULES, Decision
from attlm_fairseq.nbest.decision.mbr import loss_metric
from attlm_fairseq.nbest.references.reference_sketch import known_share
from attlm_fairseq.scoring.compute import DEFAULT_COMPUTE, Compute
from attlm_fairseq.scoring.lm_spec import LMSpec, only, read_lm, read_text, table, written_lm, written_text
from attlm_fairseq.scoring.oov_policy import with_policy
from attlm_fairseq.scoring.scorer import Scorer
from attlm_fairseq.text import TextPipeline, describe_pipelines

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

DEFAULT_CONFIG = Path("attlm.toml")
SKETCH = "reference_sketch"  # the entry of [tuning] that tells the lists tuned on
RESERVED_NAMES = ("words", "rank", "total")


@dataclass(frozen=True)
class Config:
    """What a run needs to know besides its lists."""

    lms: tuple[LMSpec, ...] = ()
    text: TextPipeline = field(default_factory=TextPipeline)
    weights: dict[str, float] = field(default_factory=dict)
    decision: Decision = field(default_factory=Decision)
    path: Path | None = field(default=None, compare=False)  # of the file that it was read from
    tuned_on: str = field(default="", compare=False)  # a sketch of the references that the weights were tuned on

    def __post_init__(self) -> None:
        plain = {lm.name for lm in self.lms if not lm.mixture}
        for lm in self.lms:
            for member, _ in lm.mixture:
                if member not in plain:
                    raise InputError(f"[lm.{lm.name}] mixes {member!r}, which is no LM of this run; there are {', '.join(sorted(plain))}")

    @property
    def scored(self) -> tuple[LMSpec, ...]:
        """The LMs that give hypotheses a score of their own: all but the members of mixtures."""
        members = {member for lm in self.lms for member, _ in lm.mixture}
        return tuple(lm for lm in self.lms if lm.name not in members)

    @property
    def texts(self) -> dict[str, TextPipeline]:
        """What each scored LM sees, by name. Raises InputError where the members of a mixture cannot be mixed word by word."""
        return {lm.name: self._text_of_mixture(lm) if lm.mixture else lm.text or self.text for lm in self.scored}

    def tuned_on_these(self, weights: Mapping[str, float], references: Iterable[Sequence[str]]) -> bool:
        """Whether most of the lists with these references are among those that ``weights``, or some of them, were tuned on."""
        in_use = any(value and weights.get(name) == value for name, value in self.weights.items())
        return in_use and known_share(references, self.tuned_on) > 0.5

    def load(self, compute: Compute = DEFAULT_COMPUTE) -> list[Scorer]:
        """The scored LMs, ready to score the words of :attr:`texts`. Raises InputError."""
        texts = self.texts  # before the files, which may take long
        return [self._mixture(lm, texts[lm.name], compute) if lm.mixture else with_policy(lm.load(compute), lm.oov) for lm in self.scored]

    def _members(self, mixture: LMSpec) -> list[tuple[LMSpec, TextPipeline]]:
        """The LMs of a mixture and what they see: their own steps, or the mixture's, or the run's."""
        members = [next(lm for lm in self.lms if lm.name == name) for name, _ in mixture.mixture]
        default = self.text if mixture.text is None else mixture.text
        return [(lm, default if lm.text is None else lm.text) for lm in members]

    def _text_of_mixture(self, mixture: LMSpec) -> TextPipeline:
        """What all members see; words, where only some of them cut these into subwords, or each in its own way."""
        texts = {lm.name: text for lm, text in self._members(mixture)}
        alike = set(texts.values())
        if len(alike) > 1:
            alike = {text.of_words() for text in alike}
        if len(alike) > 1:
            raise InputError(
                f"[lm.{mixture.name}] mixes LMs that see different words ({'; '.join(describe_pipelines(texts))}): word by word "
                "they need the same text steps, but for a last one that cuts into subwords"
            )
        return alike.pop()

    def _mixture(self, mixture: LMSpec, words: TextPipeline, compute: Compute) -> Scorer:
        from attlm_fairseq.scoring.mixture import MixtureScorer
        from attlm_fairseq.scoring.segmented import SegmentedScorer

        scorers: list[Scorer] = []
        for lm, text in self._members(mixture):
            scorer = with_policy(lm.load(compute), lm.oov)
            if text != words:
                pieces = TextPipeline((text.segmentation,)).load()
                scorer = SegmentedScorer(scorer, pieces.words, pieces.signature()[0])
            scorers.append(scorer)
        return with_policy(MixtureScorer(scorers, [weight for _, weight in mixture.mixture], mixture.name), mixture.oov)


def check_name(name: str, where: Path | None = None) -> str:
    """An LM's name, usable in every output format, or InputError."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name) or name in RESERVED_NAMES:
        raise InputError(
            f"{name!r} cannot be the name of an LM: a letter, then letters, digits, _ and -; not {', '.join(RESERVED_NAMES)}", path=where
        )
    return name


def read_config(path: Path) -> Config:
    """Read an ``attlm.toml``. Raises InputError naming the entry that is wrong."""
    document = _parse(path).unwrap()
    only(document, {"lm", "text", "weights", "decision", "tuning", "mixing"}, "table", path)
    lms = tuple(read_lm(check_name(name, path), entry, path) for name, entry in table(document, "lm", path).items())
    text = read_text(table(document, "text", path), "[text]", path)
    weights = table(document, "weights", path)
    for name, value in weights.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise InputError(f"[weights] {name} = {value!r}, expected a finite number", path=path)
    decision = read_decision(table(document, "decision", path), path)
    tuned_on = table(document, "tuning", path).get(SKETCH, "")
    if not isinstance(tuned_on, str):
        raise InputError(f"[tuning] {SKETCH} = {tuned_on!r}, expected a text, as `attlm tune` writes it", path=path)
    try:
        return Config(lms, text, {name: float(value) for name, value in weights.items()}, decision, path, tuned_on)
    except InputError as error:
        raise InputError(str(error), path=path) from None


def read_decision(entries: Mapping[str, Any], path: Path) -> Decision:
    """The ``[decision]`` of an ``attlm.toml``. Raises InputError."""
    only(entries, {"rule", "scale", "text", "scales", "tokenize"}, "entry of [decision]", path)
    rule, scale = entries.get("rule", "max"), entries.get("scale", 1.0)
    if rule not in RULES:
        raise InputError(f"[decision] rule = {rule!r}, expected one of {', '.join(RULES)}", path=path)
    scales = table(entries, "scales", path, "decision.scales")
    only(scales, {*RULES} - {"max"}, "rule with a scale", path)
    for name, value in (("[decision] scale", scale), *((f"[decision.scales] {name}", value) for name, value in scales.items())):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise InputError(f"{name} = {value!r}, expected a finite number that is not negative", path=path)
    text = read_text(table(entries, "text", path, "decision.text"), "[decision.text]", path)
    tokenize = entries.get("tokenize", "none")
    if "tokenize" in entries:
        try:
            loss_metric("bleu", tokenize)
        except InputError as error:
            raise InputError(f"[decision] tokenize: {error}", path=path) from None
    return Decision(rule, float(scale), text, {name: float(value) for name, value in scales.items()}, tokenize)


def write_config(path: Path, config: Config, record: Mapping[str, Any], record_name: str = "tuning") -> None:
    """Write LMs, text steps, weights and decision, and ``record`` as ``[tuning]``: how they came about.

    Of what an existing file holds besides, only the other record stays (see :func:`unused`), ``[tuning]`` only with the same weights;
    what is the same stays as it was written.
    The file changes at once or not at all; ``-``, a device or a pipe just gets it. Raises InputError.
    """
    import tomlkit

    if not all(map(math.isfinite, config.weights.values())):
        raise InputError(f"weights that are not finite are not written: {config.weights}", path=path)
    held = _held(path)
    document = tomlkit.document() if held is None else _parse(path)
    folder = path.absolute().parent
    old, new = _written_lms(held or Config(), folder), _written_lms(config, folder)
    _set(document, "lm", {name: document["lm"][name] if old.get(name) == entry else entry for name, entry in new.items()})
    if not config.text.steps:
        document.pop("text", None)
    elif held is None or written_text(held.text, folder) != written_text(config.text, folder):
        _set(document, "text", written_text(config.text, folder))
    _set(document, "weights", config.weights)
    if config.decision != Decision():
        decision: dict[str, Any] = {"rule": config.decision.rule, "scale": config.decision.scale}
        if config.decision.text.steps:
            decision["text"] = written_text(config.decision.text, folder)
        if config.decision.tokenize != "none":
            decision["tokenize"] = config.decision.tokenize
        if config.decision.scales:
            decision["scales"] = dict(config.decision.scales)
        _set(document, "decision", decision)
    else:
        document.pop("decision", None)
    if record_name != "tuning" and held is not None and held.weights != config.weights:
        document.pop("tuning", None)  # it tells of other weights
    document[record_name] = _encodable(record)
    with whole_file(str(path)) as out:
        out.write(tomlkit.dumps(document))


def _encodable(value: Any) -> Any:
    """What a record says, with ``\\udcNN`` for the bytes of the command line and of file names that are not UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_encodable(name): _encodable(entry) for name, entry in value.items()}
    return list(map(_encodable, value)) if isinstance(value, list | tuple) else value


def unused(path: Path, config: Config) -> list[str]:
    """What the file ``path`` holds that is not in ``config``, read from elsewhere: what :func:`write_config` would drop or replace.

    Nothing where ``config`` was read from this file. Raises InputError where the file is no ``attlm.toml``, and where this run's files
    have names that cannot be written there.
    """
    folder = path.absolute().parent
    new, new_text = _written_lms(config, folder), written_text(config.text, folder)
    held = _held(path)
    if held is None or (config.path is not None and path.samefile(config.path)):
        return []
    found = [f"[lm.{name}]" for name, entry in _written_lms(held, folder).items() if new.get(name) != entry]
    if held.text.steps and written_text(held.text, folder) != new_text:
        found.append("[text]")
    if held.weights and held.weights != config.weights:
        found.append("[weights]")
    if held.decision not in (Decision(), config.decision):
        found.append("[decision]")
    return found


def _held(path: Path) -> Config | None:
    """What stands at the path where a configuration is to be written; None where there is nothing to read."""
    return read_config(path) if path.is_file() and not is_stream(str(path)) else None


def _written_lms(config: Config, folder: Path) -> dict[str, dict[str, Any]]:
    return {lm.name: written_lm(lm, folder) for lm in config.lms}


def _set(table: MutableMapping[str, Any], name: str, value: Any) -> None:
    """Set an entry; in a table that is there already entry by entry, so that what stays the same keeps its form and comments.

    One with other tables in between (``[lm.a] [text] [lm.b]``) is no ``Table``: from it tomlkit cannot delete.
    """
    from tomlkit.items import Table

    old = table.get(name)
    if isinstance(old, Table) and isinstance(value, Mapping):
        for gone in [key for key in old if key not in value]:
            del old[gone]
        for key, entry in value.items():
            _set(old, key, entry)
    elif old is None or old != value:
        table[name] = value


def _parse(path: Path) -> TOMLDocument:
    import tomlkit  # here: a run without attlm.toml does not wait for it
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(path.read_bytes().decode("utf-8").removeprefix("\ufeff"))  # what editors on Windows begin a file with
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 (byte {error.start})", path=path) from None
    except TOMLKitError as error:
        raise InputError(f"is not TOML: {error}", path=path, line=getattr(error, "line", None)) from None
