"""The language models as components inside decoders. Each decoder's adapter imports that decoder only when it is used."""
