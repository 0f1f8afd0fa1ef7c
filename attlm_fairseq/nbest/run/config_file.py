"""Read and write ``attlm.toml``: the LMs of a rescoring run, the text steps before them and the weights (docs/formats.md)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.writing import is_stream, whole_file
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.corrections.spec import CandidateSpec
from attlm_fairseq.nbest.decision.confidence import Confidence
from attlm_fairseq.nbest.decision.decision import EXTERNAL_RULE, RULES, Decision, is_rule
from attlm_fairseq.nbest.decision.mbr import loss_metric
from attlm_fairseq.nbest.metrics.spec import UNNAMED, MetricSpec
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_entries import (
    FILE,
    NOT_NEGATIVE,
    NUMBER,
    STEPS,
    WHOLE_NUMBER,
    Entries,
    Entry,
    Place,
    as_table,
    checked,
    is_text,
    is_texts,
    only,
    parsed,
    read_table,
    relative,
    written_table,
)
from attlm_fairseq.scoring.cache import parse_neural_cache, parse_temperature, parse_unigram_cache
from attlm_fairseq.scoring.conversations import ContextSpec, parse_context
from attlm_fairseq.scoring.lm_options import ALLOWED, NOT_OF, check_name
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.scoring.oov_policy import parse_policy

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

DEFAULT_CONFIG = Path("attlm.toml")
TUNED_ON = "reference_sketch"  # the entry of [tuning] with the fingerprint of the references
RECORDS = ("tuning", "mixing", "fitting")


def _read_files(value: Any, place: Place) -> tuple[Path, ...]:
    names = checked(lambda value: is_text(value) or (bool(value) and is_texts(value)), "a file name or a list of them")(value, place)
    return tuple(place.path.parent / name for name in ([names] if isinstance(names, str) else names))


def _written_mixture(mixture: tuple[tuple[str, float], ...], folder: Path) -> dict[str, Any]:
    import tomlkit

    table = tomlkit.inline_table()
    table.update(dict(mixture))
    return table


def _written_files(paths: tuple[Path, ...], folder: Path) -> str | list[str]:
    names = [relative(path, folder) for path in paths]
    return names[0] if len(names) == 1 else names


def _as_text(value: object, folder: Path) -> str:
    return str(value)


KINDS: Entries = {
    "kenlm": FILE,
    "mixture": Entry(checked(*ALLOWED["mixture"]), _written_mixture),
    "checkpoint": Entry(_read_files, _written_files, "checkpoints"),
}
LM_OPTIONS: Entries = {
    "ensemble_weights": Entry(checked(*ALLOWED["ensemble_weights"]), lambda weights, folder: list(weights)),
    "dict": Entry(FILE.read, FILE.write, "dictionary"),
    "sentence_start": Entry(checked(*ALLOWED["sentence_start"])),
    "sentence_end": Entry(checked(*ALLOWED["sentence_end"])),
    "prompt": Entry(checked(*ALLOWED["prompt"])),
    "translation": Entry(checked(*ALLOWED["translation"])),
    "languages": Entry(checked(*ALLOWED["languages"])),
    "source_prefix": Entry(checked(*ALLOWED["source_prefix"])),
    "source_text": STEPS,
    "only_close": Entry(checked(*ALLOWED["only_close"])),
    "oov": Entry(parsed(parse_policy, 'a policy such as "penalty:-12"'), _as_text),
    "context_sentences": Entry(checked(*ALLOWED["context_sentences"])),
    "temperature": Entry(parsed(parse_temperature)),
    "adapt": FILE,
    "neural_cache": Entry(parsed(parse_neural_cache), _as_text),
    "unigram_cache": Entry(parsed(parse_unigram_cache), _as_text),
    "text": STEPS,
}
LM_ENTRIES: Entries = {**KINDS, **LM_OPTIONS}


def _read_lms(value: Any, place: Place) -> tuple[LMSpec, ...]:
    return tuple(_read_lm(check_name(name, place.path), entry, place) for name, entry in as_table(value, place.inner).items())


def _read_lm(name: str, entry: Any, place: Place) -> LMSpec:
    place = Place(place.path, f"lm.{name}")
    if not isinstance(entry, dict) or len(kinds := KINDS.keys() & entry.keys()) != 1:
        raise place.problem(" needs either `kenlm`, `checkpoint` or `mixture`")
    kind = kinds.pop()
    options = {name: option for name, option in LM_OPTIONS.items() if (option.attribute or name) not in NOT_OF.get(kind, {})}
    attributes = read_table(entry, {kind: KINDS[kind], **options}, place)
    try:
        return LMSpec(name, **attributes)
    except InputError as error:
        raise place.error(error) from None


def _read_weights(value: Any, place: Place) -> dict[str, float]:
    return {name: NUMBER(weight, Place(place.path, place.name, name)) for name, weight in as_table(value, place.inner).items()}


def _read_rule(value: Any, place: Place) -> str:
    if isinstance(value, str) and value.startswith(EXTERNAL_RULE):
        raise place.problem(f" = {value!r}: a file never says what to run; give --mbr {value.removeprefix('mbr-')}")
    return checked(lambda rule: rule in RULES, f"one of {', '.join(RULES)}")(value, place)


def _read_scales(value: Any, place: Place) -> dict[str, float]:
    scales = as_table(value, place.inner)
    only(scales, {*RULES, *filter(is_rule, scales)} - {"max"}, "a rule with a scale", place.path)
    return {name: NOT_NEGATIVE(scale, Place(place.path, place.inner.table, name)) for name, scale in scales.items()}


def _tokenizer(name: str) -> str:
    loss_metric("bleu", name)
    return name


DECISION: Entries = {
    "rule": Entry(_read_rule, always=True),
    "scale": Entry(NOT_NEGATIVE, always=True),
    "text": STEPS,
    "tokenize": Entry(parsed(_tokenizer)),
    "spaces": Entry(checked(lambda value: isinstance(value, bool), "true or false")),
    "scales": Entry(_read_scales, lambda scales, folder: dict(scales)),
}
CONFIDENCE: Entries = {"scale": Entry(NUMBER, always=True), "coverage": Entry(NUMBER, always=True)}
CORRECTIONS: Entries = {
    "table": FILE,
    "phrases": FILE,
    "corrector": FILE,
    "corrector_languages": Entry(checked(*ALLOWED["languages"])),
    "corrector_prefix": Entry(checked(*ALLOWED["source_prefix"])),
    "candidates": Entry(WHOLE_NUMBER, always=True),
}


def _read_context(value: Any, place: Place) -> ContextSpec | None:
    read = parsed(lambda text: parse_context(text, place.path.parent), 'a text such as "id:^[^-]+"')
    return read_table(value, {"conversations": Entry(read)}, place.inner).get("conversations")


def _written_context(spec: ContextSpec, folder: Path) -> dict[str, str]:
    return {"conversations": f"file:{relative(Path(spec.argument), folder)}" if spec.kind == "file" else str(spec)}


def _read_metric(value: Any, place: Place) -> MetricSpec:
    table = dict(as_table(value, place.inner))
    name = checked(is_text, "the name of a metric")(table.pop("name", MetricSpec.name), Place(place.path, place.name, "name"))
    text = STEPS.read(table.pop("text", {}), Place(place.path, place.name, "text"))
    spec = MetricSpec(name, text, table)
    try:
        if name != UNNAMED:
            spec.make()
    except InputError as error:
        raise place.inner.error(error) from None
    return spec


def _written_metric(spec: MetricSpec, folder: Path) -> dict[str, Any]:
    return {"name": spec.name} | ({"text": STEPS.write(spec.text, folder)} if spec.text.steps else {}) | dict(spec.options)


def _object(kind: type, entries: Entries, attribute: str = "") -> Entry:
    """Return the entry of a table that is an object with these attributes."""

    def read(value: Any, place: Place) -> Any:
        found = read_table(value, entries, place.inner)
        try:
            return kind(**found)
        except (InputError, ValueError) as error:
            raise place.inner.error(error) from None

    return Entry(read, lambda value, folder: written_table(value, entries, folder), attribute)


TABLES: Entries = {
    "lm": Entry(
        _read_lms, lambda lms, folder: {lm.name: written_table(lm.by_files(), LM_ENTRIES, folder) for lm in lms}, "lms", always=True
    ),
    "text": STEPS,
    "weights": Entry(_read_weights, always=True),
    "decision": _object(Decision, DECISION),
    "confidence": _object(Confidence, CONFIDENCE),
    "context": Entry(_read_context, _written_context),
    "metric": Entry(_read_metric, _written_metric),
    "corrections": _object(CandidateSpec, CORRECTIONS, "candidates"),
}


def read_config(path: Path) -> RunConfig:
    """Read an ``attlm.toml``.

    Raises:
        InputError: the file cannot be read, is not UTF-8 or is not TOML, or an entry is unknown, wrong or does not go
            with another one. The message names the entry.
    """
    document = _parse(path).unwrap()
    only(document, {*TABLES, *RECORDS}, "a table", path)
    found = read_table({name: table for name, table in document.items() if name in TABLES}, TABLES, Place(path))
    tuning = as_table(document.get("tuning", {}), Place(path, "tuning"))
    tuned_on = checked(is_text, "a text, as `attlm tune` writes it")(tuning.get(TUNED_ON, ""), Place(path, "tuning", TUNED_ON))
    tuned_with = as_table(tuning.get("lm", {}), Place(path, "tuning.lm"))
    candidates_with = as_table(tuning.get("candidates", {}), Place(path, "tuning.candidates"))
    try:
        return RunConfig(
            **found,
            path=path,
            tuned_on=tuned_on,
            tuned_with=tuned_with,
            candidates_tuned_with=candidates_with,
            context_of_file=found.get("context"),
        )
    except InputError as error:
        raise InputError(str(error), path=path) from None


def write_config(path: Path, config: RunConfig, record: Mapping[str, Any], record_name: str = "tuning", command: str | None = None) -> None:
    """Write an ``attlm.toml``. The file changes at once or not at all.

    Entries of an existing file that stay the same keep their form and comments; those that ``config`` lacks go (see
    ``unused``). The records of other commands stay if what they tell of does: for ``[tuning]`` the weights, for the others
    the LMs.

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
    old, new = written_table(held or RunConfig(), TABLES, folder), written_table(config, TABLES, folder)
    for name in TABLES:
        if name not in new:
            document.pop(name, None)
        elif name == "lm":
            _set(document, name, {lm: document[name][lm] if old[name].get(lm) == entry else entry for lm, entry in new[name].items()})
        elif held is None or old.get(name) != new[name]:
            _set(document, name, new[name])
    if held is not None and held.weights != config.weights:
        document.pop("tuning", None)
    if held is not None and not all(lm in config.lms for lm in held.lms):
        document.pop("mixing", None)
        document.pop("fitting", None)
    document[record_name] = _encodable(({"command": command} if command else {}) | dict(record))
    with whole_file(str(path)) as out:
        out.write(tomlkit.dumps(document))


def context_to_write(config: RunConfig) -> ContextSpec | None:
    """Return the context to write after a run on a text: that of the text, unless ``config`` was read from a file that tells the
    conversations of lists by their ids, which lines of text do not have."""
    held = config.context_of_file
    return config.context if held is None or held.kind not in ("id", "file") else held


def note_kept_context(config: RunConfig) -> None:
    """Log if the context to write is not that of the text."""
    if (kept := context_to_write(config)) != config.context:
        note(f"note: [context] in {config.path} stays {kept}, which is for lists")


def unused(path: Path, config: RunConfig, found: Collection[str] = ()) -> list[str]:
    """Return the tables that ``write_config`` would drop or replace, because ``config`` was read from elsewhere.

    LMs may differ in the settings ``found``, which the run finds. There are no such tables if ``config`` was read from this
    file. Raises InputError if the file is not an ``attlm.toml``, or if a file of ``config`` has a name that cannot be
    written.
    """
    folder = path.absolute().parent
    new = written_table(config, TABLES, folder)
    held = _held(path)
    if held is None or (config.path is not None and path.samefile(config.path)):
        return []
    old = written_table(held, TABLES, folder)

    def kept(entry: Mapping[str, Any] | None) -> dict[str, Any] | None:
        return None if entry is None else {name: value for name, value in entry.items() if name not in found}

    lms = [f"[lm.{name}]" for name, entry in old["lm"].items() if kept(new["lm"].get(name)) != kept(entry)]
    return lms + [f"[{name}]" for name, table in old.items() if name != "lm" and table and new.get(name) != table]


def _encodable(value: Any) -> Any:
    """Return a record with ``\\udcNN`` for the bytes of the command line and of file names that are not UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_encodable(name): _encodable(entry) for name, entry in value.items()}
    return list(map(_encodable, value)) if isinstance(value, list | tuple) else value


def _held(path: Path) -> RunConfig | None:
    """Return the configuration in a file that is to be written; None if there is none to read."""
    return read_config(path) if path.is_file() and not is_stream(str(path)) else None


def _set(table: MutableMapping[str, Any], name: str, value: Any) -> None:
    """Set an entry. An existing table is changed entry by entry, so that equal entries keep their form and comments.

    A table with others in between (``[lm.a] [text] [lm.b]``) is not a ``Table``: tomlkit cannot delete from it.
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

    text = ""
    try:
        text = path.read_bytes().decode("utf-8").removeprefix("\ufeff")  # what editors on Windows begin a file with
        return tomlkit.parse(text)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 (byte {error.start})", path=path) from None
    except TOMLKitError as error:
        line = getattr(error, "line", None) or _line_of_second_key(text)
        raise InputError(f"is not TOML: {error}", path=path, line=line) from None


def _line_of_second_key(text: str) -> int | None:
    """Return the line with a key that is there already, which tomlkit does not tell."""
    import tomlkit
    from tomlkit.exceptions import KeyAlreadyPresent, TOMLKitError

    lines = text.splitlines(keepends=True)
    for number in range(1, len(lines) + 1):
        try:
            tomlkit.parse("".join(lines[:number]))
        except KeyAlreadyPresent:
            return number
        except TOMLKitError:
            continue  # within a value of several lines
    return None
