"""The explorer: one offline HTML page in which small trained models run and panels answer questions on position."""
