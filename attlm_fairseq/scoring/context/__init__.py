"""Scoring after earlier sentences: conversations, documents and caches."""
