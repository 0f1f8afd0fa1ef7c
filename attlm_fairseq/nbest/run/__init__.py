"""Run over files: configuration, blocks, processes, resuming."""
