"""Write the training data of a neural corrector: hypothesis-reference pairs, in files for ``fairseq-preprocess``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.folders import whole_folder
from attlm_fairseq.nbest.corrections.alignment import bounded, closest_reference, unbounded
from attlm_fairseq.nbest.fingerprints import same_utterance
from attlm_fairseq.nbest.nbest_list import NbestList

VALID_EVERY = 20  # of so many utterances one tells when to stop


def write_pairs(lists: Iterable[NbestList], folder: Path) -> dict[str, int]:
    """Write ``train.hyp``, ``train.ref``, ``valid.hyp`` and ``valid.ref`` into a new folder, one text per line.

    Each distinct hypothesis of a list is paired with its closest reference. Every VALID_EVERY-th utterance goes to ``valid``,
    all lists of it with their 1-best hypothesis only. White space becomes single spaces.

    Returns:
        The number of pairs by split.

    Raises:
        InputError: a list has no reference, there are fewer than VALID_EVERY utterances, or the folder exists.
    """
    counts = {"train": 0, "valid": 0}
    lists = list(lists)
    texts_of = [[hypothesis.text for hypothesis in nbest.hypotheses] for nbest in lists]
    utterances = same_utterance([nbest.references for nbest in lists], texts_of, str)
    with whole_folder(str(folder)) as place:
        lines: dict[str, list[str]] = {f"{split}.{side}": [] for split in counts for side in ("hyp", "ref")}
        for utterance, nbest in zip(utterances.tolist(), lists, strict=True):
            if not nbest.references:
                raise nbest.error(f"list {nbest.id!r} has no reference: a corrector is trained on lists with references")
            split = "train" if (utterance + 1) % VALID_EVERY else "valid"
            references = list(map(bounded, nbest.references))
            hypotheses = dict.fromkeys(tuple(bounded(hypothesis.text)) for hypothesis in nbest.hypotheses)
            for words in list(hypotheses)[: None if split == "train" else 1]:
                lines[f"{split}.hyp"].append(unbounded(words[1:-1]))
                lines[f"{split}.ref"].append(unbounded(closest_reference(words, references)[1:-1]))
                counts[split] += 1
        if not counts["valid"]:
            raise InputError(f"a corrector needs {VALID_EVERY} utterances at least: one in {VALID_EVERY} tells when training is to stop")
        for name, texts in lines.items():
            (place / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return counts
