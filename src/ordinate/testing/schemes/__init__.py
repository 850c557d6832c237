"""Contract checks of schemes, one topic per file; each public function is a check."""
