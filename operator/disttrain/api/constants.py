"""Every name that the operator writes into a cluster, in one place."""

from __future__ import annotations

GROUP = "disttrain.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "DistTrainJob"
PLURAL = "disttrainjobs"
SHORT_NAME = "dtj"

MANAGED_BY = f"{GROUP}/operator"
"""`spec.managedBy` of a job that is ours; any other value makes us leave the job alone."""

# Labels of pods and Services.
LABEL_JOB = f"{GROUP}/job"
"""Name of the job."""
LABEL_JOB_UID = f"{GROUP}/job-uid"
"""UID of the job: pods of a deleted job of the same name are nobody's peers."""
LABEL_ROLE = f"{GROUP}/role"
LABEL_INDEX = f"{GROUP}/index"
"""Index within the role, from 0."""
LABEL_ROUND = f"{GROUP}/round"
"""Round of the world that the pod belongs to, from 1."""
LABEL_LIVE = f"{GROUP}/live"
"""`"true"` while the pod's name shall resolve; taken off before a successor is made."""
LABEL_LEADER = f"{GROUP}/leader"
"""`"true"` on the pod whose success and progress are the job's."""

# What the control loop fills in just before it makes a Secret, since the core has no randomness of its own.
ANNOTATION_GENERATE = f"{GROUP}/generate"
"""On a Secret without data: what kind of data the loop shall generate for it."""
GENERATE_SSH_KEYS = "ssh-keys"
"""A fresh ed25519 pair for users and one for hosts, under the keys that follow."""
SSH_KEY = "id_ed25519"
SSH_HOST_KEY = "ssh_host_ed25519_key"
SSH_AUTHORIZED_KEYS = "authorized_keys"
SSH_KNOWN_HOSTS = "known_hosts"

# Environment that every pod of every framework gets, whatever else its framework needs.
ENV_JOB = "DISTTRAIN_JOB"
ENV_ROLE = "DISTTRAIN_ROLE"
ENV_INDEX = "DISTTRAIN_INDEX"
ENV_ROUND = "DISTTRAIN_ROUND"
ENV_WORLD_SIZE = "DISTTRAIN_WORLD_SIZE"
ENV_CHECKPOINT_DIR = "DISTTRAIN_CHECKPOINT_DIR"
ENV_RESUME_FROM = "DISTTRAIN_RESUME_FROM"
ENV_LEADER = "DISTTRAIN_LEADER"
ENV_HOSTFILE = "DISTTRAIN_HOSTFILE"
"""Horovod and MPI: the file that lists the hosts, in the format of the MPI."""
ENV_DISCOVERY_SCRIPT = "DISTTRAIN_DISCOVERY_SCRIPT"
"""Horovod and MPI: the script that prints `host:slots` lines."""
ENV_SLOTS = "DISTTRAIN_SLOTS"
"""Horovod and MPI: processes that a worker takes."""
ENV_SSH_PORT = "DISTTRAIN_SSH_PORT"
"""Horovod and MPI: the port of sshd in this very pod."""
COMMON_ENV = (
    ENV_JOB,
    ENV_ROLE,
    ENV_INDEX,
    ENV_ROUND,
    ENV_WORLD_SIZE,
    ENV_CHECKPOINT_DIR,
    ENV_RESUME_FROM,
    ENV_LEADER,
)

PYTORCH_ENV = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "NODE_RANK",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "PET_NNODES",
    "PET_NPROC_PER_NODE",
    "PET_NODE_RANK",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
    "PET_RDZV_BACKEND",
    "PET_RDZV_ENDPOINT",
    "PET_RDZV_ID",
    "PET_RDZV_CONF",
    "PET_LOCAL_ADDR",
    "PET_MAX_RESTARTS",
)
"""What torchrun and `init_method="env://"` read to find their peers."""
TENSORFLOW_ENV = ("TF_CONFIG",)
"""What `TFConfigClusterResolver` reads."""
MPI_ENV = (
    ENV_HOSTFILE,
    ENV_DISCOVERY_SCRIPT,
    ENV_SLOTS,
    ENV_SSH_PORT,
    "OMPI_MCA_orte_default_hostfile",
    "OMPI_MCA_plm_rsh_args",
    "PRTE_MCA_prte_default_hostfile",
    "PRTE_MCA_plm_ssh_args",
    "I_MPI_HYDRA_HOST_FILE",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS",
    "HYDRA_HOST_FILE",
    "HYDRA_LAUNCHER_EXTRA_ARGS",
)
"""Where `mpirun` and `mpiexec` look for the hosts, and how they call ssh."""
RESERVED_ENV = COMMON_ENV + PYTORCH_ENV + TENSORFLOW_ENV + MPI_ENV
"""Names that the operator owns: a template that sets one is refused, with this list."""

PROGRESS_MARK = "DISTTRAIN_PROGRESS "
"""A line of the leader's log that starts so carries one JSON object: the training's progress."""

MAX_REPLICAS = 10_000
"""Most workers of a job; bounds every list that a job can make us keep."""
MAX_PROCS = 1024
"""Most processes of a pod."""
KEPT_FAILURES = 20
"""Entries of `status.failures`, newest last."""
