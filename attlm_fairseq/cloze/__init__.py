"""Cloze tests: questions in the format of the Children's Book Test, made from any text."""
