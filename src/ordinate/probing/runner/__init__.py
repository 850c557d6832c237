"""Running probes on a model: input samples, the probe runner, the folder of findings, the Python API."""
