"""What every scheme promises, one subject a file; each public function is a check."""
