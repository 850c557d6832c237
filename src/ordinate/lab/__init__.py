"""A model questioned: which texts it reads, what is asked of it, and where the answers are kept."""
