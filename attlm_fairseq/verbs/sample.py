"""Draw sentences from a neural LM."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from pathlib import Path
from types import NoneType

from attlm_fairseq.checkpoints.vocabulary import UNK
from attlm_fairseq.decoding.decoder_lm import DecoderLM
from attlm_fairseq.decoding.sampling import Sample, SamplingOptions, sample_sentences
from attlm_fairseq.errors import require_type, require_utf8, require_whole_number, visible
from attlm_fairseq.messages import note
from attlm_fairseq.verbs.arguments import FilePath, check_file


def sample(
    lm: FilePath | DecoderLM,
    number: int = 10,
    prefix: str = "",
    *,
    options: SamplingOptions | None = None,
    seed: int = 1,
    dictionary: FilePath | None = None,
    device: str = "cpu",
) -> Iterator[Sample]:
    """Draw sentences from a neural LM, one at a time.

    Args:
        lm: a checkpoint of fairseq-train, a folder of ``attlm export``, or a ``DecoderLM``, which is loaded already.
        number: number of sentences. The n-th sentence depends only on the seed, not on ``number``.
        prefix: the words that each sentence begins with.
        options: temperature, top-k, top-p, length, unknown words.
        seed: random seed.
        dictionary: ``dict.txt`` of a checkpoint; None to look next to the checkpoint and in its data folder.
        device: ``cpu``, ``cuda`` or ``cuda:N``. A ``DecoderLM`` stays on its own.

    Returns:
        An iterator over the sentences with their log-probabilities (natural log).

    Raises:
        InputError: a file cannot be read or is not a neural LM, an argument is of another type, or the prefix is not UTF-8.
    """
    require_whole_number("number", number)
    require_type("value of seed", seed, Integral, "a whole number")
    require_type("value of options", options, (SamplingOptions, NoneType), "SamplingOptions(..)")
    require_utf8(prefix, "--prefix")
    if not isinstance(lm, DecoderLM):
        check_file(lm, None)
        lm = DecoderLM.load(Path(lm), None if dictionary is None else Path(dictionary), device)
    words = prefix.split()
    if missing := [word for word, token in zip(words, lm.vocabulary.ids(words), strict=True) if token == UNK]:
        note(f"unknown to the LM, which reads <unk> in their place: {', '.join(map(visible, missing))}")
    return sample_sentences(lm, number, prefix=words, options=options, seed=seed)
