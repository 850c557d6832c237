"""Formats of quantised weights, one per file, by the `quant_method` of config.json."""
