"""What pip asks of a clone (PEP 517): `pip install .` is `make wheel GLIBC=host`, for this machine alone."""

import os
import pathlib
import shutil
import subprocess

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    subprocess.run(["make", "wheel", "GLIBC=host", f"-j{len(os.sched_getaffinity(0))}"], cwd=_ROOT, check=True)
    wheel = next((_ROOT / "build" / "wheel").glob("*.whl"))
    shutil.copy(wheel, wheel_directory)
    return wheel.name
