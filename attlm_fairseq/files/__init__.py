"""Read and write files: standard streams, plain and gzip text. An interrupted run leaves no partial output."""
