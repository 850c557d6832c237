"""Text corpora, one per file."""
