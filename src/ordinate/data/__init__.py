"""From text to a memory-mapped file of tokens."""
