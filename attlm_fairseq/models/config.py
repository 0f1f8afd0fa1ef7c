"""The options of models on fairseq's command line. Each model's own config adds the options of its reader."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from dataclasses import dataclass, field, fields
from typing import Any, Optional

from attlm_fairseq.models._choices import ChoiceOptions
from attlm_fairseq.modules.recurrence import LSTM


@dataclass
class LanguageModelConfig(ChoiceOptions):
    """The options of every model. Each model's own config adds the options of its reader."""

    decoder_embed_dim: int = field(default=512, metadata={"help": "size of the word embeddings"})
    decoder_hidden_size: int = field(default=512, metadata={"help": "size of a recurrent state h_t"})
    decoder_layers: int = field(default=2, metadata={"help": "number of recurrent layers"})
    decoder_top_size: Optional[int] = field(
        default=None, metadata={"help": "size of a state of the top layer, if it differs (default: --decoder-hidden-size)"}
    )
    projection_size: int = field(
        default=0,
        metadata={
            "help": "P: the memory and the output layer get a projection of h_t to this size (0: h_t itself). h_t may then be larger than "
            "the embeddings of a tied output layer"
        },
    )
    output_layer: str = field(
        default="tied",
        metadata={
            "help": "output layer: softmax with the embedding matrix (tied) or its own (untied), adaptive softmax (adaptive), or one of "
            "another package",
        },
    )
    adaptive_cutoffs: Optional[str] = field(
        default=None, metadata={"help": "comma-separated word ids at which the adaptive softmax begins a new cluster, such as 2000,10000"}
    )
    softmaxes: str = field(
        default="1",
        metadata={
            "help": "number of softmaxes that are mixed (MoS); with more numbers, such as 15,5, also of softmaxes over the layers "
            "below the top one, downwards (DOC). The output layer costs as much as all of them"
        },
    )
    dropout: float = field(default=0.3, metadata={"help": "dropout probability at each of the places below"})
    dropout_in: Optional[float] = field(default=None, metadata={"help": "dropout of the embeddings (default: --dropout)"})
    dropout_between: Optional[float] = field(default=None, metadata={"help": "dropout between LSTM layers (default: --dropout)"})
    dropout_out: Optional[float] = field(default=None, metadata={"help": "dropout of the features (default: --dropout)"})
    dropout_latent: Optional[float] = field(
        default=None, metadata={"help": "dropout of the vectors that enter the softmaxes of a mixture (default: --dropout)"}
    )
    locked_dropout: bool = field(
        default=False,
        metadata={"help": "use variational dropout: one dropout mask for all positions of a row of the batch"},
    )
    dropout_words: float = field(
        default=0.0, metadata={"help": "probability of dropping a word: its embedding is 0 at all its positions in a batch"}
    )
    weight_drop: float = field(
        default=0.0, metadata={"help": "probability of dropping an element of the recurrent matrices, at all positions of a batch"}
    )
    init_range: float = field(default=0.05, metadata={"help": "R: weights are initialised uniformly in [-R, R]"})
    init_biases: str = field(
        default="zero",
        metadata={
            "choices": ["zero", "uniform"],
            "help": "initial biases, except those of forget gates: 0 (zero) or drawn like weights (uniform)",
        },
    )
    init_layers: str = field(
        default="range",
        metadata={
            "choices": ["range", "torch"],
            "help": "initial weights of the layers: in [-R, R] (range) or, with their biases, as PyTorch draws them (torch), between "
            "+-1/sqrt(size of the state) in an LSTM. R is then for tables of words and the softmax alone",
        },
    )
    output_bias: str = field(
        default="unigram",
        metadata={
            "choices": ["zero", "unigram"],
            "help": "initial output biases: log frequency of each word or cluster in the training text (unigram), with which Adam "
            "learns much faster; or the same as other biases (zero), as in the papers. Other tasks than this package's use zero",
        },
    )
    compute_dtype: str = field(
        default="float32",
        metadata={
            "choices": ["float32", "bf16"],
            "help": "bf16 computes matrix products in bfloat16, but weights, recurrent state and loss in float32. It is for GPUs (where "
            "cuDNN computes the layers of LSTMs and plain RNNs, in TF32), CPUs with AMX (amx_bf16) and AMD's with avx512_bf16. Without AMX "
            "it is slower on Intel's. CPUs without instructions for it compute in float32",
        },
    )
    init_from: Optional[str] = field(
        default=None,
        metadata={
            "help": "checkpoint from which embeddings, LSTM and output layer are copied (AMSRN: of a plain_lstm_lm). Only this package's "
            "tasks take it"
        },
    )


@dataclass
class LSTMLanguageModelConfig(LanguageModelConfig):
    """The options of models whose recurrence is an LSTM."""

    # None in presets: as the other biases
    forget_bias: Optional[float] = field(default=LSTM.defaults["forget_bias"], metadata={"help": "initial bias of the LSTM's forget gates"})


@dataclass
class AttentionConfig(LSTMLanguageModelConfig):
    """The options of LSTMs with attention over earlier states or words."""

    attention_skip: int = field(
        default=0,
        metadata={"help": "S: number of newest states (or words) in memory that are not attended to"},
    )


def inherited(name: str, default: Any) -> Any:
    """Return a field of ``LanguageModelConfig`` with another default, for configs of papers that use one."""
    return field(default=default, metadata=LanguageModelConfig.__dataclass_fields__[name].metadata)


def default_of(config: type, option: str) -> Any:
    """Return the default of an option of a model; None if the model does not have it."""
    return next((one.default for one in fields(config) if one.name == option), None)
