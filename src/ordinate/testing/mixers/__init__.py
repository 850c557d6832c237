"""Contract tests of mixers, one topic per file; each public function is a test."""
