"""Small, printable models made of blocks."""
