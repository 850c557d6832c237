"""Prints what machine, device and versions the results of ./dev gpu belong to, and what the device can do."""

import json
import platform
import shutil
import subprocess
from importlib import metadata

import torch


def main() -> None:
    """Print facts as JSON, then what nvidia-smi says."""
    facts = {"python": platform.python_version(), "system": platform.platform(), "torch": torch.__version__}
    facts |= {"cuda": torch.version.cuda, "hip": torch.version.hip, "cudnn": torch.backends.cudnn.version()}
    for package in ("triton", "numpy", "pytest"):
        facts[package] = version(package)
    facts["devices"] = [described(number) for number in range(torch.cuda.device_count())]
    print(json.dumps(facts, indent=1))
    program = shutil.which("nvidia-smi")
    if program and facts["devices"]:
        print(subprocess.run([program, "-q", "-d", "CLOCK,MEMORY,POWER,ECC"], capture_output=True, text=True).stdout)


def version(package: str) -> str | None:
    """The installed version; None: not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def described(number: int) -> dict[str, str]:
    """Properties of a device by name."""
    found = torch.cuda.get_device_properties(number)
    return {name: str(getattr(found, name)) for name in dir(found) if not name.startswith("_")}


if __name__ == "__main__":
    main()
