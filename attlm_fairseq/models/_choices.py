"""Options of fairseq that are one of a few words."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from dataclasses import Field

from fairseq.dataclass import ChoiceEnum, FairseqDataclass


class ChoiceOptions(FairseqDataclass):
    """Base of configs: a ``str`` field with "choices" in its metadata takes one of these words.

    fairseq and hydra want an Enum made at run time as the field's type, which no type checker can follow.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, option in vars(cls).items():
            if isinstance(option, Field) and "choices" in option.metadata:
                cls.__annotations__[name] = ChoiceEnum(list(option.metadata["choices"]))
