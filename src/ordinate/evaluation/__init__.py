"""Evaluation of trained models: losses and accuracy by length, confidence intervals, paired comparisons."""
