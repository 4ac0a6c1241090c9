"""Horovod: one module a framework, and `disttrain-horovodrun`."""
