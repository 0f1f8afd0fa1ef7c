"""Output layers."""
