"""What every mixer promises, one subject a file; each public function is a check."""
