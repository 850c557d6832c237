"""Plans, runs and results of a study."""
