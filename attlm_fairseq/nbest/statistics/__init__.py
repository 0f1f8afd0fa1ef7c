"""How good a system is, and how sure that is."""
