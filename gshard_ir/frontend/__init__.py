"""Source text to IR: `parser` makes the syntax tree of `ast`, `lower` gives it meaning."""
