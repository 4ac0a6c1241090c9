"""What runs inside the pods of a DistTrainJob: entrypoints to run or to copy, and the small library under them.

Modules at this level need no framework: `shutdown`, `checkpoint`, `progress`, `sampling`, `data`. What needs one
lives in a folder of its name: `disttrain_training.pytorch`. Nothing here imports the operator, and everything works
without it: the variables that it sets (`DISTTRAIN_*`) are read where they are there, and have a flag or a plain
default otherwise.
"""

from __future__ import annotations

__version__ = "0.1.0"
