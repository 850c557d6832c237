"""The contract suites, shipped so that anyone can check members of their own."""
