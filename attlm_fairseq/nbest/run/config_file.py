"""``attlm.toml``: the LMs of a rescoring run, the text steps before them and the weights.

    [lm.attentive]                  # a neural LM: one checkpoint, or several as an ensemble
    checkpoint = "checkpoints/checkpoint_best.pt"
    dict = "data-bin/dict.txt"      # if it does not lie next to the checkpoint

    [lm.ngram]
    kenlm = "lm.arpa"

    [lm.mt]                         # a translation model of fairseq: forward, right-to-left or reverse
    checkpoint = "mt.pt"
    translation = "forward"
    source_text = { steps = [] }    # before source sentences; without it the LM's text steps

    oov = "spread:100000"           # what an unknown word costs: unk (default), penalty:LOGPROB, spread:TYPES
    context_sentences = 5           # how many sentences before it is told of a conversation; default: all
    temperature = 0.95              # divides the logits of this package's neural LMs
    neural_cache = "500:0.3:0.1"    # SIZE:THETA:WEIGHT, of this package's neural LMs
    unigram_cache = "500:0.1:0.99"  # SIZE:WEIGHT:DECAY, of any LM
    adapt = "lm.adaptation"         # dynamic evaluation, as `attlm fit` found it
    text = { steps = ["lowercase"] }  # instead of the steps of [text]
    only_close = 10.0               # score hypotheses that the decoder put so near to the best, natural log

    [lm.mix]                        # linear over words; its members then have no score of their own
    mixture = { attentive = 0.6, ngram = 0.4 }

    [text]                          # in this order; `tokenize = "en"` and `lowercase = true` are short for these two
    steps = ["unicode:nfkc", "tokenize:en", "lowercase"]

    [weights]                       # of any score in the list, any LM, `words` and `rank`
    attentive = 0.8

    [decision]                      # how totals decide: max (default), mbr-wer, mbr-cer, mbr-bleu, mbr-chrf, mbr-ter,
    consensus rule = "mbr-wer"
    scale = 1.5                     # of the posteriors, softmax(scale * total)
    text = { steps = ["join-subwords:bpe"] }  # before losses and votes
    tokenize = "zh"                 # sacreBLEU's tokenizer in the loss of mbr-bleu; default: none
    scales = { consensus = 0.7 }    # of other rules, with these weights

    [confidence]                    # of words, found by `attlm tune --confidence`
    scale = 0.4                     # of the posteriors
    coverage = 0.98                 # confidence of a word on which all hypotheses agree

    [context]                       # which lists are one conversation: all, id:REGEX, file:FILE, see docs/context.md
    conversations = "id:^[^-]+"

    [corrections]                   # candidates that are in no list, see docs/corrections.md
    table = "corrections.tsv"       # learned by `attlm corrections`
    phrases = "names.txt"           # one phrase per line
    corrector = "corrector.pt"      # a translation model from hypothesis to reference
    candidates = 20                 # at most so many join a list

Paths are relative to the file. `attlm tune` and `attlm mix` write it: then it holds what that run used and found, and
how in ``[tuning]`` and ``[mixing]``. What stays the same stays as it was written, comments included. Any other table is
an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attlm_fairseq.errors import InputError
from attlm_fairseq.files import is_stream, whole_file
from attlm_fairseq.nbest.corrections.expansion import CANDIDATES
from attlm_fairseq.nbest.corrections.spec import CandidateSpec
from attlm_fairseq.nbest.decision.confidence import Confidence
from attlm_fairseq.nbest.decision.decision import EXTERNAL_RULE, RULES, Decision, is_rule
from attlm_fairseq.nbest.decision.mbr import loss_metric
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.numeric import is_number
from attlm_fairseq.scoring.cache import parse_neural_cache, parse_temperature, parse_unigram_cache
from attlm_fairseq.scoring.conversations import ContextSpec, parse_context
from attlm_fairseq.scoring.lm_spec import DIRECTIONS, LMSpec, are_shares, check_name
from attlm_fairseq.scoring.oov_policy import parse_policy
from attlm_fairseq.text import Step, TextPipeline, parse_steps

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

DEFAULT_CONFIG = Path("attlm.toml")
SKETCH = "reference_sketch"  # the entry of [tuning] that tells the lists tuned on
# what an entry of any kind may hold
COMMON = {"text", "oov", "context_sentences", "temperature", "neural_cache", "unigram_cache", "adapt", "only_close"}
OF_CHECKPOINTS = {"dict", "ensemble_weights", "sentence_start", "sentence_end", "translation", "source_text"}
ENTRIES = {"kenlm": COMMON, "checkpoint": OF_CHECKPOINTS | COMMON, "mixture": COMMON}


def read_config(path: Path) -> RunConfig:
    """Read an ``attlm.toml``. Raises InputError naming the entry that is wrong."""
    document = _parse(path).unwrap()
    only(
        document,
        {"lm", "text", "weights", "decision", "confidence", "context", "corrections", "tuning", "mixing", "fitting"},
        "a table",
        path,
    )
    lms = tuple(read_lm(check_name(name, path), entry, path) for name, entry in table(document, "lm", path).items())
    text = read_text(table(document, "text", path), "[text]", path)
    weights = table(document, "weights", path)
    for name, value in weights.items():
        if not is_number(value) or not math.isfinite(value):
            raise InputError(f"[weights] {name} = {value!r}, expected a finite number", path=path)
    decision = read_decision(table(document, "decision", path), path)
    confidence = read_confidence(table(document, "confidence", path), path)
    candidates = read_candidates(table(document, "corrections", path), path)
    context = read_context(table(document, "context", path), path)
    tuned_on = table(document, "tuning", path).get(SKETCH, "")
    if not isinstance(tuned_on, str):
        raise InputError(f"[tuning] {SKETCH} = {tuned_on!r}, expected a text, as `attlm tune` writes it", path=path)
    try:
        return RunConfig(
            lms,
            text,
            {name: float(value) for name, value in weights.items()},
            decision,
            path,
            tuned_on,
            candidates=candidates,
            confidence=confidence,
            context=context,
        )
    except InputError as error:
        raise InputError(str(error), path=path) from None


def read_context(entries: Mapping[str, Any], path: Path) -> ContextSpec | None:
    """The ``[context]`` of an ``attlm.toml``. Raises InputError."""
    only(entries, {"conversations"}, "an entry of [context]", path)
    if "conversations" not in entries:
        return None
    given = entries["conversations"]
    try:
        if not isinstance(given, str):
            raise InputError(f'found {given!r}, expected a text such as "id:^[^-]+"')
        return parse_context(given, path.parent)
    except InputError as error:
        raise InputError(f"[context] conversations: {error}", path=path) from None


def written_context(spec: ContextSpec, folder: Path) -> dict[str, Any]:
    """The entries of ``[context]`` for a file in ``folder`` (absolute)."""
    if spec.kind != "file":
        return {"conversations": str(spec)}
    return {"conversations": f"file:{_relative(Path(spec.argument), folder)}"}


def read_candidates(entries: Mapping[str, Any], path: Path) -> CandidateSpec:
    """The ``[corrections]`` of an ``attlm.toml``. Raises InputError."""
    only(entries, {"table", "phrases", "corrector", "candidates"}, "an entry of [corrections]", path)
    files: dict[str, Path] = {}
    for name in ("table", "phrases", "corrector"):
        if name in entries:
            if not isinstance(entries[name], str):
                raise InputError(f"[corrections] {name} = {entries[name]!r}, expected a file name", path=path)
            files[name] = path.parent / entries[name]
    count = entries.get("candidates", CANDIDATES)
    if isinstance(count, bool) or not isinstance(count, int):
        raise InputError(f"[corrections] candidates = {count!r}, expected a whole number", path=path)
    try:
        return CandidateSpec(files.get("table"), files.get("phrases"), count, files.get("corrector"))
    except InputError as error:
        raise InputError(f"[corrections] {error}", path=path) from None


def written_candidates(spec: CandidateSpec, folder: Path) -> dict[str, Any]:
    """The entries of ``[corrections]`` for a file in ``folder`` (absolute)."""
    files = {"table": spec.table, "phrases": spec.phrases, "corrector": spec.corrector}
    return {name: _relative(file, folder) for name, file in files.items() if file} | {"candidates": spec.candidates}


def read_confidence(entries: Mapping[str, Any], path: Path) -> Confidence | None:
    """The ``[confidence]`` of an ``attlm.toml``; None if there is none. Raises InputError."""
    only(entries, {"scale", "coverage"}, "an entry of [confidence]", path)
    for name, value in entries.items():
        if not is_number(value) or not math.isfinite(value):
            raise InputError(f"[confidence] {name} = {value!r}, expected a finite number", path=path)
    try:
        return Confidence(**{name: float(value) for name, value in entries.items()}) if entries else None
    except ValueError as error:
        raise InputError(f"[confidence] {error}", path=path) from None


def read_decision(entries: Mapping[str, Any], path: Path) -> Decision:
    """The ``[decision]`` of an ``attlm.toml``. Raises InputError."""
    only(entries, {"rule", "scale", "text", "scales", "tokenize"}, "an entry of [decision]", path)
    rule, scale = entries.get("rule", "max"), entries.get("scale", 1.0)
    if isinstance(rule, str) and rule.startswith(EXTERNAL_RULE):
        raise InputError(f"[decision] rule = {rule!r}: a file never says what to run; give --mbr {rule.removeprefix('mbr-')}", path=path)
    if rule not in RULES:
        raise InputError(f"[decision] rule = {rule!r}, expected one of {', '.join(RULES)}", path=path)
    scales = table(entries, "scales", path, "decision.scales")
    only(scales, {*RULES, *(name for name in scales if is_rule(name))} - {"max"}, "a rule with a scale", path)
    for name, value in (("[decision] scale", scale), *((f"[decision.scales] {name}", value) for name, value in scales.items())):
        if not is_number(value) or not 0 <= value < math.inf:
            raise InputError(f"{name} = {value!r}, expected a finite number that is not negative", path=path)
    text = read_text(table(entries, "text", path, "decision.text"), "[decision.text]", path)
    tokenize = entries.get("tokenize", "none")
    if "tokenize" in entries:
        try:
            loss_metric("bleu", tokenize)
        except InputError as error:
            raise InputError(f"[decision] tokenize: {error}", path=path) from None
    return Decision(rule, float(scale), text, {name: float(value) for name, value in scales.items()}, tokenize)


def write_config(path: Path, config: RunConfig, record: Mapping[str, Any], record_name: str = "tuning", command: str | None = None) -> None:
    """Write an ``attlm.toml``. The file changes at once or not at all.

    Entries of an existing file that stay the same keep their form and comments; those that ``config`` lacks go (see
    ``unused``). The records of other commands stay, ``[tuning]`` only with the same weights.

    Args:
        path: the file; ``-``, a device or a pipe is only written.
        config: LMs, text steps, weights, decision and so on.
        record: how they were found.
        record_name: the table of the record.
        command: the command line, which opens the record.

    Raises:
        InputError: the existing file is not an ``attlm.toml``, or a weight or file name cannot be written.
    """
    import tomlkit

    if not all(map(math.isfinite, config.weights.values())):
        raise InputError(f"weights that are not finite are not written: {config.weights}", path=path)
    held = _held(path)
    document = tomlkit.document() if held is None else _parse(path)
    folder = path.absolute().parent
    old, new = _written_lms(held or RunConfig(), folder), _written_lms(config, folder)
    _set(document, "lm", {name: document["lm"][name] if old.get(name) == entry else entry for name, entry in new.items()})
    if not config.text.steps:
        document.pop("text", None)
    elif held is None or written_text(held.text, folder) != written_text(config.text, folder):
        _set(document, "text", written_text(config.text, folder))
    _set(document, "weights", config.weights)
    confidence = config.confidence
    tables = {
        "decision": None if config.decision == Decision() else written_decision(config.decision, folder),
        "confidence": None if confidence is None else {"scale": confidence.scale, "coverage": confidence.coverage},
        "context": None if config.context is None else written_context(config.context, folder),
        "corrections": written_candidates(config.candidates, folder) if config.candidates.anything else None,
    }
    for name, entries in tables.items():
        if entries is None:
            document.pop(name, None)
        else:
            _set(document, name, entries)
    if record_name != "tuning" and held is not None and held.weights != config.weights:
        document.pop("tuning", None)  # it tells of other weights
    document[record_name] = _encodable(({"command": command} if command else {}) | dict(record))
    with whole_file(str(path)) as out:
        out.write(tomlkit.dumps(document))


def written_decision(decision: Decision, folder: Path) -> dict[str, Any]:
    """The table ``[decision]``; files are relative to ``folder``."""
    return {
        "rule": decision.rule,
        "scale": decision.scale,
        **({"text": written_text(decision.text, folder)} if decision.text.steps else {}),
        **({"tokenize": decision.tokenize} if decision.tokenize != "none" else {}),
        **({"scales": dict(decision.scales)} if decision.scales else {}),
    }


def _encodable(value: Any) -> Any:
    """What a record says, with ``\\udcNN`` for the bytes of the command line and of file names that are not UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_encodable(name): _encodable(entry) for name, entry in value.items()}
    return list(map(_encodable, value)) if isinstance(value, list | tuple) else value


def unused(path: Path, config: RunConfig) -> list[str]:
    """What the file ``path`` holds that is not in ``config``, read from elsewhere: what ``write_config`` would drop or replace.

    Nothing where ``config`` was read from this file. Raises InputError where the file is no ``attlm.toml``, and where
    this run's files have names that cannot be written there.
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
    if held.confidence not in (None, config.confidence):
        found.append("[confidence]")
    if held.context not in (None, config.context):
        found.append("[context]")
    if held.candidates.anything and held.candidates != config.candidates:
        found.append("[corrections]")
    return found


def _held(path: Path) -> RunConfig | None:
    """What stands at the path where a configuration is to be written; None where there is nothing to read."""
    return read_config(path) if path.is_file() and not is_stream(str(path)) else None


def _written_lms(config: RunConfig, folder: Path) -> dict[str, dict[str, Any]]:
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


def read_lm(name: str, entry: Any, path: Path) -> LMSpec:
    """The LM of an entry of the file ``path``. Raises InputError naming what is wrong."""
    where = f"[lm.{name}]"
    if not isinstance(entry, dict) or len(kinds := ENTRIES.keys() & entry.keys()) != 1:
        raise InputError(f"{where} needs either `kenlm`, `checkpoint` or `mixture`", path=path)
    kind = kinds.pop()
    only(entry, {kind} | ENTRIES[kind], f"an entry of {where}", path)
    spec = _read_common(name, entry, where, path)
    if kind == "mixture":
        return replace(spec, mixture=_read_mixture(entry["mixture"], where, path))
    files = entry[kind]
    files = [files] if isinstance(files, str) else files
    strings = [*files, *([entry["dict"]] if "dict" in entry else [])] if isinstance(files, list) else [None]
    if not files or not all(isinstance(file, str) for file in strings) or (kind == "kenlm" and len(files) != 1):
        raise InputError(f"{where} `kenlm` and `dict` are a file name, `checkpoint` a file name or a list of them", path=path)
    folder = path.parent
    if kind == "kenlm":
        return replace(spec, kenlm=folder / files[0])
    return _read_checkpoints(spec, entry, [folder / file for file in files], path)


def _read_common(name: str, entry: Mapping[str, Any], where: str, path: Path) -> LMSpec:
    """What an entry of any kind may say. Raises InputError."""
    text = read_text(table(entry, "text", path, f"lm.{name}.text"), f"[lm.{name}.text]", path) if "text" in entry else None
    if not isinstance(policy := entry.get("oov", "unk"), str):
        raise InputError(f'{where} oov = {policy!r}, expected a policy such as "penalty:-12"', path=path)
    sentences = entry.get("context_sentences")
    if sentences is not None and (isinstance(sentences, bool) or not isinstance(sentences, int) or sentences < 0):
        raise InputError(f"{where} context_sentences = {sentences!r}, expected a whole number, 0 for none", path=path)
    try:
        oov = parse_policy(policy)
    except InputError as error:
        raise InputError(f"{where} oov: {error}", path=path) from None
    spec = LMSpec(name, text=text, oov=oov, context_sentences=sentences, only_close=_read_margin(entry, where, path))
    return replace(spec, **_read_adjustments(entry, where, path))


def _read_checkpoints(spec: LMSpec, entry: Mapping[str, Any], files: Sequence[Path], path: Path) -> LMSpec:
    """``spec`` with checkpoints and what may be said of these. Raises InputError."""
    where = f"[lm.{spec.name}]"
    weights = entry.get("ensemble_weights")
    if weights is not None and (not isinstance(weights, list) or not are_shares(weights, len(files))):
        raise InputError(f"{where} ensemble_weights needs {len(files)} numbers, none negative, not all zero", path=path)
    for token in ("sentence_start", "sentence_end"):
        if not isinstance(entry.get(token, ""), str):
            raise InputError(f"{where} {token} = {entry[token]!r}, expected a token of the LM", path=path)
    direction = entry.get("translation")
    if direction not in (None, *DIRECTIONS):
        raise InputError(f"{where} translation = {direction!r}, expected one of {', '.join(DIRECTIONS)}", path=path)
    source = read_text(table(entry, "source_text", path, f"lm.{spec.name}.source_text"), f"[lm.{spec.name}.source_text]", path)
    return replace(
        spec,
        translation=direction,
        source_text=source if "source_text" in entry else None,
        checkpoints=tuple(files),
        sentence_start=entry.get("sentence_start"),
        sentence_end=entry.get("sentence_end"),
        ensemble_weights=None if weights is None else tuple(map(float, weights)),
        dictionary=path.parent / entry["dict"] if "dict" in entry else None,
    )


def _read_adjustments(entry: Mapping[str, Any], where: str, path: Path) -> dict[str, Any]:
    """The temperature and the caches of an entry. Raises InputError."""
    found: dict[str, Any] = {}
    parsers: dict[str, Callable[[str], Any]] = {
        "temperature": parse_temperature,
        "neural_cache": parse_neural_cache,
        "unigram_cache": parse_unigram_cache,
        "adapt": lambda name: path.parent / name,
    }
    for key in parsers.keys() & entry.keys():
        if "mixture" in entry:
            raise InputError(f"{where} {key} is for the LMs of the mixture, not for the mixture", path=path)
        try:
            found[key] = parsers[key](str(entry[key]))
        except InputError as error:
            raise InputError(f"{where} {key}: {error}", path=path) from None
    return found


def _read_margin(entry: Mapping[str, Any], where: str, path: Path) -> float | None:
    margin = entry.get("only_close")
    if margin is not None and (not is_number(margin) or not 0 <= margin < math.inf):
        raise InputError(f"{where} only_close = {margin!r}, expected a finite number that is not negative", path=path)
    return None if margin is None else float(margin)


def _read_mixture(mixture: Any, where: str, path: Path) -> tuple[tuple[str, float], ...]:
    if not isinstance(mixture, dict) or not are_shares(list(mixture.values()), max(1, len(mixture))):
        raise InputError(f"{where} mixture = {{NAME = WEIGHT, ..}} needs names of LMs with weights, none negative, not all zero", path=path)
    return tuple((member, float(weight)) for member, weight in mixture.items())


def read_text(entry: Mapping[str, Any], where: str, path: Path) -> TextPipeline:
    """The text steps of a table: ``steps``, or the shorter ``tokenize`` and ``lowercase``. Files are relative to ``path``'s folder."""
    only(entry, {"steps", "lowercase", "tokenize"}, f"an entry of {where}", path)
    if "steps" in entry and len(entry) > 1:
        raise InputError(f"{where} has `steps`: give all of them there, `lowercase` and `tokenize` too", path=path)
    steps, lowercase, tokenize = entry.get("steps", []), entry.get("lowercase", False), entry.get("tokenize")
    if not isinstance(steps, list) or not all(isinstance(step, str) for step in steps):
        raise InputError(f'{where} steps = {steps!r}, expected a list such as ["unicode:nfc", "lowercase"]', path=path)
    if not isinstance(lowercase, bool):
        raise InputError(f"{where} lowercase = {lowercase!r}, expected true or false", path=path)
    if tokenize is not None and not isinstance(tokenize, str):
        raise InputError(f'{where} tokenize = {tokenize!r}, expected a language such as "en"', path=path)
    steps = [*steps, *([f"tokenize:{tokenize}"] if tokenize is not None else []), *(["lowercase"] if lowercase else [])]
    try:
        return parse_steps(steps, path.parent)
    except InputError as error:
        raise InputError(f"{where} {error}", path=path) from None


def written_lm(lm: LMSpec, folder: Path) -> dict[str, Any]:
    """The entry of an LM for a file in ``folder`` (absolute). Raises InputError for names of files that are not UTF-8."""
    if lm.kenlm is not None:
        entry: dict[str, Any] = {"kenlm": _relative(lm.kenlm, folder)}
    elif lm.mixture:
        import tomlkit

        entry = {"mixture": tomlkit.inline_table()}
        entry["mixture"].update(dict(lm.mixture))
    else:
        files = [_relative(path, folder) for path in lm.checkpoints]
        entry = {"checkpoint": files[0] if len(files) == 1 else files}
        if lm.ensemble_weights:
            entry["ensemble_weights"] = list(lm.ensemble_weights)
        if lm.dictionary:
            entry["dict"] = _relative(lm.dictionary, folder)
        entry |= {
            key: token for key, token in (("sentence_start", lm.sentence_start), ("sentence_end", lm.sentence_end)) if token is not None
        }
        if lm.translation is not None:
            entry["translation"] = lm.translation
        if lm.source_text is not None:
            entry["source_text"] = written_text(lm.source_text, folder)
    if lm.only_close is not None:
        entry["only_close"] = lm.only_close
    if lm.oov.kind != "unk":
        entry["oov"] = str(lm.oov)
    if lm.context_sentences is not None:
        entry["context_sentences"] = lm.context_sentences
    if lm.temperature is not None:
        entry["temperature"] = lm.temperature
    if lm.adapt is not None:
        entry["adapt"] = _relative(lm.adapt, folder)
    entry |= {key: str(cache) for key, cache in (("neural_cache", lm.neural_cache), ("unigram_cache", lm.unigram_cache)) if cache}
    if lm.text is not None:
        entry["text"] = written_text(lm.text, folder)
    return entry


def written_text(pipeline: TextPipeline, folder: Path) -> dict[str, Any]:
    """The table of text steps for a file in ``folder`` (absolute)."""
    steps = (Step(step.name, _relative(Path(step.argument), folder)) if step.needs_file else step for step in pipeline.steps)
    return {"steps": list(map(str, steps))}


def _relative(path: Path, folder: Path) -> str:
    path = path.absolute()
    written = str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
    try:
        written.encode()
    except UnicodeEncodeError:
        raise InputError("attlm.toml, which is UTF-8, cannot hold this name: give the file or its folder another", path=path) from None
    return written


def table(document: Mapping[str, Any], name: str, path: Path, title: str | None = None) -> Mapping[str, Any]:
    """Return the table ``name`` of a document; empty if there is none. Raises InputError if it is not a table."""
    found = document.get(name, {})
    if not isinstance(found, dict):
        raise InputError(f"`{name}` is {found!r}, expected a table [{title or name}]", path=path)
    return found


def only(entries: Mapping[str, Any], known: set[str], what: str, path: Path) -> None:
    """Raises InputError for an entry that is not known."""
    for name in entries:
        if name not in known:
            raise InputError(f"{name!r} is not {what}; known are {', '.join(sorted(known))}", path=path)
