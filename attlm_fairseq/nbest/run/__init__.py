"""Running over files: configuration, blocks, processes, resuming."""
