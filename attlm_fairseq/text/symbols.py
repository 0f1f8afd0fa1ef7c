"""The symbols that stand for no word of a text, as dictionaries, ARPA files and n-gram estimation spell them."""

START = "<s>"
END = "</s>"
UNKNOWN = "<unk>"
