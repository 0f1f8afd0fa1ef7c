"""``--arch rwa_lm``: the recurrent weighted averages of Ostmeyer and Cowell (2017), which average in the recurrence itself."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from fairseq.models import register_model

from attlm_fairseq.models.config import LanguageModelConfig
from attlm_fairseq.models.language_model import MemoryLanguageModel


@register_model("rwa_lm", dataclass=LanguageModelConfig)
class WeightedAverageLanguageModel(MemoryLanguageModel):
    family = "rwa_lm"
