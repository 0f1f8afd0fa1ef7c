"""The symbols that are not words of a text, as spelled in dictionaries, ARPA files and n-gram estimation."""

START = "<s>"
END = "</s>"
UNKNOWN = "<unk>"


def encodable(text: str) -> str:
    """Return the text with U+FFFD for lone surrogates, which JSON can hold and UTF-8 cannot."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
