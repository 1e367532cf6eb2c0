"""Every process that imports tests has a config folder of its own, for the keys of sweeps."""

import atexit
import os
import shutil
import tempfile

_PREFIX = "tune-tests-config-"

if _PREFIX not in os.environ.get("XDG_CONFIG_HOME", ""):  # a process that a test starts has ours
    os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix=_PREFIX)
    for _name in ("TUNE_KEY", "TUNE_KEY_FILE"):
        os.environ.pop(_name, None)
    atexit.register(shutil.rmtree, os.environ["XDG_CONFIG_HOME"], ignore_errors=True)
