"""Imported by any Python whose path has this folder, before anything else: its clock is then that of CLOCK_FILE."""

import os
from pathlib import Path

from campaigns.attacks.skewed import skew

skew(Path(os.environ["CLOCK_FILE"]))
