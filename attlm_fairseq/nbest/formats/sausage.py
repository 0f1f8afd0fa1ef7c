"""Write confusion networks ("sausages") for SRILM's tools: a folder with one word mesh per list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.folders import file_inside, whole_folder
from attlm_fairseq.nbest.formats.list_ids import file_of_id, writable
from attlm_fairseq.nbest.nbest_list import NbestList, Sausage

NO_WORD = "*DELETE*"  # SRILM's name for no word in a slot


def write_sausages(lists: Iterable[NbestList], path: str) -> None:
    """Write a folder with one file per list, named by its id, in the format of SRILM's ``nbest-lattice -use-mesh``.

    Each slot is a line ``align SLOT word posterior word posterior ..``, most probable word first; ``*DELETE*`` means no
    word. The posteriors of a slot sum to 1, rounded to 6 digits. The lists carry their ``sausage``.

    Raises:
        InputError: an id cannot be a file name, a word has a meaning of its own in the format, or the folder exists.
            Nothing is written then.
    """
    if path == "-":
        raise InputError("sausages are written as a folder, not to standard output: give a name for the folder with -o")
    with whole_folder(path) as folder:
        for nbest in writable(lists, "sausage"):
            assert nbest.sausage is not None, "a list without confidences"
            with file_inside(folder / file_of_id(nbest)) as out:
                out.writelines(_lines(nbest, nbest.sausage))


def _lines(nbest: NbestList, sausage: Sausage) -> Iterator[str]:
    yield f"name {nbest.id}\nnumaligns {len(sausage.slots)}\nposterior 1\n"
    for number, slot in enumerate(sausage.slots):
        if any(word == NO_WORD for word, _ in slot):
            raise InputError(f"list {nbest.id!r} has the word {NO_WORD}, which means no word in a sausage")
        yield f"align {number} {' '.join(f'{word or NO_WORD} {share:.6g}' for word, share in slot)}\n"
