"""The kubelet of the one-machine cluster: each pod becomes local processes.

As on a node: phases, conditions, container states, exit codes (128 + N for signal N), termination messages, restart
policies with back-off, init containers and sidecars, grace periods, preStop (exec, sleep), probes (exec, tcpSocket),
environment, volumes, host names, hostAliases, activeDeadlineSeconds, a node's shutdown.

Otherwise than on a node, and on purpose:

- No image is pulled: a container needs a `command`, and runs in the Python environment at hand. It sees the machine's
files
  and network; only mount points, host name, shared memory, process numbers and /etc/hosts are its own.
- A container's PID 1 is a small init which hands SIGTERM on to the main process alone. So a program without a handler
for
  it ends at once; as PID 1 in an image it would ignore it and be killed after the grace period.
- A command that cannot be run ends the container as under containerd: exit code 128, reason StartError.
- A pod that cannot be run here (unknown volume type or probe, no command, a path that is not there) is Failed at once
with
  reason UnsupportedPodSpec and a message that says what would do.
- Pods are bound as soon as they are seen. CPU and memory are neither counted nor limited, so there is no OOMKilled:
what the
  kernel kills ends with 137 and reason Error. Node selectors, affinities and taints are not looked at.
- securityContext is not applied: everything runs as the user who started the cluster.
- A claim is a folder, and needs no PersistentVolumeClaim object.
- No service account token, no service environment variables, no Events.
- What a kubelet reports at a node's shutdown (phase Failed, reason Terminated, condition DisruptionTarget) is
reported when
  the cluster stops, and when it starts, of pods that an earlier one left running.

Modules: `kubelet` follows the API and places pods, `pod` lives one pod's life, `container` plans a process, `sandbox`
is the near side and `zygote`, `supervisor`, `inside`, `rootfs`, `linux`, `sweep` the far side of the processes that
do it.
"""
