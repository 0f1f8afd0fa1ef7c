"""Fast paths, each next to the plain computation that it equals."""
