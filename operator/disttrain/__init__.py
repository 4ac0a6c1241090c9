"""DistTrainJob: distributed training on Kubernetes from one manifest."""

__version__ = "0.1.0"
