"""Reports: HTML pages, charts and CSV tables, built from the JSON results of studies and probes alone."""
