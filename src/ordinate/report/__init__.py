"""Tables, charts and one page, from results alone."""
