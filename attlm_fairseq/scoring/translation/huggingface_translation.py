"""Encoder-decoder models of Hugging Face (Marian, NLLB, M2M100, T5, ..) that translate, from a folder; nothing is downloaded.

Loading runs no code of the folder, see ``huggingface``. A sentence is its words joined by single spaces, cut by the model's own
tokenizer. The marks of languages that a multilingual tokenizer adds are given to the decoder and not scored, as in ``generate``
with ``forced_bos_token_id``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import compress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.hashes import FileHash
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.foreign_lms.huggingface_files import load_pretrained, model_files
from attlm_fairseq.scoring.foreign_lms.huggingface_lm import most_positions
from attlm_fairseq.scoring.translation.translation_model import Pair, Prefixes, TranslationModel, layer_sizes
from attlm_fairseq.text.symbols import encodable

NAMED = 3  # target languages that a warning names


class HuggingFaceTranslation(TranslationModel):
    """An encoder-decoder model and its tokenizer.

    The log-probabilities are those of transformers' loss with the labels ``tokenizer(text_target=..)``, without marks of languages.
    """

    word_by_word = False

    def __init__(self, model: Any, tokenizer: Any, folder: Path, languages: str | None = None, source_prefix: str | None = None) -> None:
        """Choose languages and prefix, see ``load_translation_models``.

        Raises:
            InputError: the tokenizer needs languages or has none, does not know one of them, or has no sentence end; or the model
                names no token with which the decoder starts.
        """
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.folder = folder
        self.languages = languages
        self.source_prefix = source_prefix
        self.vocabulary_size = int(model.config.get_text_config(decoder=True).vocab_size)
        sides = {side: getattr(model.config, f"max_{side}_position_embeddings", None) for side in ("encoder", "decoder")}  # LED's
        self.most_read, self.most_written = (sides[side] or most_positions(model) for side in ("encoder", "decoder"))
        self.layer_size, self.heads = layer_sizes([model])
        self._hashes = list(map(FileHash, model_files(folder)))
        self._set_languages(languages)
        start = getattr(model.config, "decoder_start_token_id", None)
        self._start = model.generation_config.decoder_start_token_id if start is None else start
        empty = self._target_ids("")
        if tokenizer.eos_token_id not in empty or self._start is None:
            found = "has no decoder_start_token_id, or its tokenizer does not end sentences"
            raise InputError(f"{found}; expected a model that translates, such as Marian", path=folder)
        self._marks_before = empty.index(tokenizer.eos_token_id)  # before a sentence
        self._marks_after = len(empty) - self._marks_before - 1
        if self._marks_after:  # mBART's: the decoder begins with the mark that ends a sentence
            self._start = empty[-1]
        self._scale, self._bias = 1.0, getattr(model, "final_logits_bias", None)
        self._check_logits()
        self._is_unknown_read = cache(lambda word: tokenizer.unk_token_id in tokenizer(encodable(word))["input_ids"])
        self._is_unknown_written = cache(lambda word: tokenizer.unk_token_id in self._target_ids(encodable(word)))

    def read_ids(self, words: Sequence[str]) -> tuple[int, ...]:
        text = encodable(" ".join(words))
        return tuple(self.tokenizer(text if self.source_prefix is None else f"{self.source_prefix} {text}")["input_ids"])

    def written_ids(self, words: Sequence[str]) -> tuple[int, ...]:
        return self._target_ids(encodable(" ".join(words)))

    def unknown_read(self, words: Sequence[str]) -> tuple[bool, ...]:
        return tuple(map(self._is_unknown_read, words))

    def unknown_written(self, words: Sequence[str]) -> tuple[bool, ...]:
        return tuple(map(self._is_unknown_written, words))

    def log_probs(self, batch: Sequence[Pair]) -> list[tuple[float, ...]]:
        places = {source: place for place, source in enumerate(dict.fromkeys(pair.read for pair in batch))}
        rows = torch.tensor([places[pair.read] for pair in batch], device=self.model.device)
        sources, real = self._source_batch(list(places))
        encoded = self.model.get_encoder()(input_ids=sources, attention_mask=real).last_hidden_state.index_select(0, rows)
        before = self._padded([(self._start, *pair.written[:-1]) for pair in batch])
        states = self._states(before, encoded, real.index_select(0, rows))
        prefixes = Prefixes.of(batch)
        logits = self._logits(states[tuple(zip(*prefixes.first, strict=True))]).float()
        values = (logits[prefixes.ends, prefixes.tokens] - logits.logsumexp(dim=-1)[prefixes.ends]).double().tolist()
        return [
            (*[0.0] * self._marks_before, *of_pair[self._marks_before : len(of_pair) - self._marks_after], *[0.0] * self._marks_after)
            for of_pair in prefixes.by_pair(batch, values)
        ]

    @torch.inference_mode()
    def searched(self, sentences: Sequence[Sequence[str]], count: int, most_pieces: int) -> list[list[str]]:
        sources, real = self._source_batch(list(map(self.read_ids, sentences)))
        given = {"forced_bos_token_id": self._target_ids("")[0]} if self._marks_before else {}
        found = self.model.generate(
            input_ids=sources,
            attention_mask=real,
            num_beams=count,
            num_return_sequences=count,
            do_sample=False,
            decoder_start_token_id=self._start,
            forced_eos_token_id=None,  # Marian's would end what has not ended
            max_new_tokens=most_pieces if self.most_written is None else min(most_pieces, self.most_written - 1),
            **given,
        ).tolist()
        unknown, end = self.tokenizer.unk_token_id, self.tokenizer.eos_token_id
        ended = [end in ids[1:] and unknown not in ids for ids in found]
        texts = [self.tokenizer.decode(ids, skip_special_tokens=True).strip() for ids in found]
        return [list(compress(texts[place : place + count], ended[place:])) for place in range(0, len(texts), count)]

    def signature(self) -> dict[str, object]:
        return {
            "kind": "huggingface translation",
            "folder": str(self.folder),
            "architecture": type(self.model).__name__,
            "sha256": {found.path.name: found.digest() for found in self._hashes},
            "languages": self.languages or "",
            "source prefix": self.source_prefix or "",
            "OOV policy": "words are cut into pieces; p(unknown token) for an unknown piece",
        }

    def notes(self, name: str) -> list[str]:
        codes = list(getattr(self.tokenizer, "supported_language_codes", ()))  # Marian's, which stand before the source sentence
        if len(codes) < 2 or (self.source_prefix or "").split(" ")[0] in codes:
            return []
        some = ", ".join([*codes[:NAMED], *([".."] if len(codes) > NAMED else [])])
        return [f"WARNING: {name} translates into several languages ({some}): --source-prefix {name}='{codes[0]}' chooses one"]

    def _states(self, before: Tensor, encoded: Tensor, real: Tensor) -> Tensor:
        """Return the decoder's states (N, T, D) after the tokens ``before`` (N, T), which ``_logits`` takes."""
        decoder = self.model.get_decoder()
        return decoder(input_ids=before, encoder_hidden_states=encoded, encoder_attention_mask=real, use_cache=False).last_hidden_state

    def _logits(self, states: Tensor) -> Tensor:
        """Return the logits (M, V) of states (M, D)."""
        logits = self.model.get_output_embeddings()(states * self._scale)
        return logits if self._bias is None else logits + self._bias

    @torch.inference_mode()
    def _check_logits(self) -> None:
        """Find the scale of the states before the output layer (T5's, if its embeddings are tied). Raises InputError if there is none."""
        tokens = torch.tensor([[self._start, *self._target_ids("a")]], device=self.model.device)
        read = torch.tensor([self.read_ids(["a"])], device=self.model.device)
        real = torch.ones_like(read)
        wrong = f"{type(self.model).__name__}: its logits are not its output layer of the decoder's states"
        try:
            exact = self.model(input_ids=read, attention_mask=real, decoder_input_ids=tokens).logits[0]
            states = self._states(tokens, self.model.get_encoder()(input_ids=read, attention_mask=real).last_hidden_state, real)[0]
        except (AttributeError, TypeError, ValueError) as error:  # a decoder with other arguments
            raise InputError(f"{wrong} ({error})", path=self.folder) from None
        for scale in (1.0, self.model.get_output_embeddings().in_features ** -0.5):
            self._scale = scale
            if torch.allclose(self._logits(states), exact, rtol=1e-4, atol=1e-4):
                return
        raise InputError(wrong, path=self.folder)

    def _set_languages(self, languages: str | None) -> None:
        tokenizer = self.tokenizer
        multilingual = hasattr(tokenizer, "src_lang")
        if not multilingual and languages is not None:
            found = f"its tokenizer has no languages, found {languages!r}"
            raise InputError(f"{found}: leave them out, or give them to another model alone (NAME=..)", path=self.folder)
        if not multilingual:
            return
        if languages is None:
            raise InputError(
                "reads and writes several languages: give --languages SOURCE:TARGET (to a corrector: --corrector-languages) in its own "
                "names, such as deu_Latn:eng_Latn",
                path=self.folder,
            )
        source, target = languages.split(":")
        for language in (source, target):
            try:
                tokenizer.src_lang = tokenizer.tgt_lang = language
                marks = getattr(tokenizer, "lang_token_to_id", {}).values()  # M2M100's
                special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder, *marks} - {tokenizer.unk_token_id}
                known = special.issuperset((*tokenizer("")["input_ids"], *self._target_ids("")))  # not a piece of words
            except KeyError:
                known = False
            if not known:
                raise InputError(f"its tokenizer does not know the language {language!r}", path=self.folder)
        tokenizer.src_lang, tokenizer.tgt_lang = source, target

    def _target_ids(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(text_target=text)["input_ids"])

    def _source_batch(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Return what the encoder reads: token ids (N, T), and 1 for each that is no padding."""
        longest = max(map(len, sources))
        real = [[1] * len(ids) + [0] * (longest - len(ids)) for ids in sources]
        return self._padded(sources), torch.tensor(real, device=self.model.device)

    def _padded(self, sentences: Sequence[Sequence[int]]) -> Tensor:
        longest, padding = max(map(len, sentences)), self.model.config.pad_token_id or 0
        return torch.tensor([[*ids, *[padding] * (longest - len(ids))] for ids in sentences], device=self.model.device)


def load_huggingface_translation(
    folder: Path, languages: str | None, source_prefix: str | None, compute: DeviceConfig
) -> HuggingFaceTranslation:
    """Load an encoder-decoder model from a folder, in float32; see ``load_translation_models``.

    Raises:
        InputError: transformers is not installed, the folder is not that of an encoder-decoder model in safetensors, or the languages
            are not those of its tokenizer.
    """
    model, tokenizer = load_pretrained("AutoModelForSeq2SeqLM", folder)
    return HuggingFaceTranslation(model.to(compute.device), tokenizer, folder, languages, source_prefix)
