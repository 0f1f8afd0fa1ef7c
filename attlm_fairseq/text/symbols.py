"""The symbols that are not words of a text, as spelled in dictionaries, ARPA files and n-gram estimation."""

START = "<s>"
END = "</s>"
UNKNOWN = "<unk>"
