"""Published models of texts and images, of which the language model is read."""
