"""Places where the runs of a study are carried out, one a file."""
