"""TensorFlow: strategies, input pipelines, checkpoints, and entrypoints to run or to copy (`train`,
`parameter_server`).
"""

import os

# Looked at when TensorFlow is imported: without it each process prints a dozen lines of how it was built. A job with
# `debug: true` sets 0.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
