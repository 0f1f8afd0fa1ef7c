"""The tables of an ``attlm.toml`` and their entries: how each is read, checked and written (docs/formats.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.corrections.spec import CandidateSpec
from attlm_fairseq.nbest.decision.confidence import Confidence
from attlm_fairseq.nbest.decision.decision import EXTERNAL_RULE, RULES, Decision, is_rule
from attlm_fairseq.nbest.decision.mbr import loss_metric
from attlm_fairseq.nbest.metrics.spec import UNNAMED, MetricSpec
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
from attlm_fairseq.scoring.context.cache import parse_neural_cache, parse_temperature, parse_unigram_cache
from attlm_fairseq.scoring.context.conversations import ContextSpec, parse_context
from attlm_fairseq.scoring.lm_options import ALLOWED, NOT_OF, check_name
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.scoring.unknown_words.oov_policy import parse_policy


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
