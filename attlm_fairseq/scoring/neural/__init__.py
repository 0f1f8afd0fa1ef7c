"""This package's neural LMs as scorers."""
