"""The kubelet of the one-machine cluster: each pod becomes local processes."""
