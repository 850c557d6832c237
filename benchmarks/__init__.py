"""What Ordinate costs, as ratios measured side by side in one process."""
