"""fairseq options whose value is one of a few words."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from dataclasses import Field

from fairseq.dataclass import ChoiceEnum, FairseqDataclass


class ChoiceOptions(FairseqDataclass):
    """Base class of configs. A ``str`` field with "choices" in its metadata accepts only these words.

    fairseq and hydra need an Enum as the field's type. It is created at run time, so type checkers do not see it.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, option in vars(cls).items():
            if isinstance(option, Field) and "choices" in option.metadata:
                cls.__annotations__[name] = ChoiceEnum(list(option.metadata["choices"]))
