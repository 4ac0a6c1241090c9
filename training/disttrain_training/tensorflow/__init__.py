"""TensorFlow: strategies, input pipelines, checkpoints, and entrypoints to run or to copy (`train`,
`parameter_server`).
"""
