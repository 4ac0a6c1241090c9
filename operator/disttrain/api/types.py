"""DistTrainJob as types: the one source of defaults, validation, documentation and the CRD.

Field names are Python's here and camelCase on the wire. A field's `Meta` holds its description and bounds;
`later()` marks a field whose behaviour is not built yet: admission refuses it, so that it is never silently ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from .constants import MANAGED_BY, MAX_PROCS, MAX_REPLICAS

Framework = Literal["pytorch", "tensorflow", "horovod", "mpi"]
FRAMEWORKS: tuple[Framework, ...] = ("pytorch", "tensorflow", "horovod", "mpi")
RoleName = Literal["master", "chief", "launcher", "ps", "evaluator", "worker"]
ROLES: tuple[RoleName, ...] = ("master", "chief", "launcher", "ps", "evaluator", "worker")
FRAMEWORK_ROLES: dict[Framework, tuple[RoleName, ...]] = {
    "pytorch": ("master", "worker"),
    "tensorflow": ("chief", "worker", "ps", "evaluator"),
    "horovod": ("launcher", "worker"),
    "mpi": ("launcher", "worker"),
}
"""The roles that each framework has a use for, the leader's first."""
State = Literal["Pending", "Starting", "Running", "Resizing", "Restarting", "Suspended", "Succeeded", "Failed"]
ConditionType = Literal["Accepted", "Running", "Stalled", "Suspended", "Succeeded", "Failed"]
RoundCause = Literal["Start", "Restart", "Resize", "Resume"]

PodTemplate = Annotated[dict[str, Any], Meta(extra={"pod_template": True})]
"""A PodTemplateSpec as the user wrote it. The CRD types only what its rules must see (see `schema.pod_template`)."""


def doc(description: str, **bounds: Any) -> Meta:
    """Documents a field, with bounds that msgspec and the CRD both enforce. `extra` may hold

    - `hint`: what to write, in words, for the refusal of a value that `pattern` does not match,
    - `map_keys`: the fields that tell a list's items apart,
    - `filled`: the API server shall write the default into a status.
    """
    return Meta(description=description, **bounds)


def later(description: str, instead: str = "", **bounds: Any) -> Meta:
    """Documents a field that admission refuses until its behaviour is built; `instead` says what does until then."""
    return Meta(description=description, extra={"later": instead}, **bounds)


class Base(Struct, rename="camel", omit_defaults=True):
    """What every type of the resource shares. Absent and default read the same. Values are never changed in place."""


# ------------------------------------------------------------------------------------------------ spec


class Role(Base):
    """One role of the job: how many pods, made from which template."""

    replicas: Annotated[int, doc("Number of pods of this role.", ge=0, le=MAX_REPLICAS)] = 1
    template: Annotated[PodTemplate | None, doc("Pod template of this role; the job's `template` where absent.")] = None
    restart_policy: Annotated[
        Literal["Job", "Pod", "Auto"] | None,
        doc("What a failure of a pod of this role restarts; `restart.scope` where absent."),
    ] = None


class Checkpoints(Base):
    """Where training state is kept across restarts and resizes. One of `claimName` and `volume` is required."""

    claim_name: Annotated[
        Annotated[str, Meta(pattern="^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$", max_length=253)] | None,
        doc(
            "PersistentVolumeClaim to mount; with several pods it must be ReadWriteMany.",
            extra={"hint": "the name of a PersistentVolumeClaim: a-z, 0-9, - and ."},
        ),
    ] = None
    volume: Annotated[
        Annotated[dict[str, Any], Meta(min_length=1)] | None,
        doc("A volume source in place of a claim, such as `{hostPath: {path: /data}}`."),
    ] = None
    sub_path: Annotated[Annotated[str, Meta(max_length=1024)] | None, doc("Folder within the volume to mount.")] = None
    mount_path: Annotated[
        str,
        doc(
            "Where every pod sees the volume.",
            pattern="^/[^:]+$",
            max_length=1024,
            extra={"hint": "an absolute path without a colon, such as /checkpoints"},
        ),
    ] = "/checkpoints"
    resume_from: Annotated[
        Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=253)] | None,
        doc(
            "UID of another job on the same volume, whose checkpoints this one begins with while it has none of its "
            "own; its folder is `DISTTRAIN_RESUME_FROM`.",
            extra={"hint": "the uid of another job, as kubectl get -o yaml shows it"},
        ),
    ] = None


class Elastic(Base, kw_only=True):
    """Makes the worker count live: the job goes on through a resize."""

    min_replicas: Annotated[int, doc("Fewest workers to train with.", ge=1, le=MAX_REPLICAS)] = 1
    max_replicas: Annotated[int, doc("Most workers to train with.", ge=1, le=MAX_REPLICAS)]
    rejoin_seconds: Annotated[
        int, doc("How long to wait for a missing worker before going on without it.", ge=0, le=86_400)
    ] = 60


class Backoff(Base):
    """Pause before a restart: doubles from `initial` to `max`, with jitter."""

    initial: Annotated[int, doc("Seconds before the first restart.", ge=0, le=86_400)] = 0
    max: Annotated[int, doc("Most seconds before a restart.", ge=0, le=86_400)] = 300


class RestartRule(Base, kw_only=True):
    """What a failure that matches does to the job. Every matcher given must match; the first matching rule counts."""

    action: Annotated[
        Literal["Restart", "Fail", "Ignore"],
        doc("`Restart` within the budget, `Fail` at once, or `Ignore`: restart without a charge."),
    ]
    exit_codes: Annotated[
        Annotated[list[Annotated[int, Meta(ge=1, le=255)]], Meta(max_length=64)] | None,
        doc("Exit codes of the main container."),
    ] = None
    signals: Annotated[
        Annotated[list[Annotated[str, Meta(pattern="^SIG[A-Z0-9]+$", max_length=16)]], Meta(max_length=32)] | None,
        doc("Signals that ended the main container, such as `SIGKILL`."),
    ] = None
    reasons: Annotated[
        Annotated[list[Annotated[str, Meta(max_length=128)]], Meta(max_length=32)] | None,
        doc("Reasons of the pod or its main container, such as `OOMKilled`."),
    ] = None


class Restart(Base):
    """What happens when a pod fails."""

    limit: Annotated[
        int,
        doc(
            "Restarts in a row without progress before the job fails. A checkpoint newer than the last restart's "
            "clears the count; a job that reports no checkpoint has a plain count.",
            ge=0,
            le=1_000_000,
        ),
    ] = 3
    total: Annotated[
        Annotated[int, Meta(ge=0, le=1_000_000)] | None,
        doc("Charged restarts over the job's whole life; unbounded where absent."),
    ] = None
    scope: Annotated[
        Literal["Job", "Pod", "Auto"],
        doc("What restarts: the whole `Job`, the one `Pod`, or what the framework needs (`Auto`)."),
    ] = "Auto"
    backoff: Annotated[Backoff | None, doc("Pause before each restart; none where absent.")] = None
    rules: Annotated[
        Annotated[list[RestartRule], Meta(max_length=32)] | None,
        doc(
            "What particular failures do, first match first. Where none matches, exit codes 126 and 127 fail the job "
            "and others restart it within `limit`."
        ),
    ] = None


class Mpi(Base):
    """Settings of MPI and Horovod jobs."""

    implementation: Annotated[Literal["OpenMPI", "Intel", "MPICH"], doc("The MPI in the image.")] = "OpenMPI"
    slots_per_worker: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None, doc("Processes that a worker takes; `procsPerNode` where absent.")
    ] = None
    ssh_port: Annotated[
        int,
        doc("Port of sshd in the workers; with `network: Host` each pod has one of its own instead.", ge=1, le=65_535),
    ] = 2222
    ssh_home: Annotated[
        Annotated[str, Meta(pattern="^/[^:]*$", max_length=1024)] | None,
        doc(
            "Home folder of the user in the image: ssh's configuration is then put into its `.ssh`, for images whose "
            "ssh does not read `/etc/ssh/ssh_config.d`.",
            extra={"hint": "an absolute path without a colon, such as /home/mpiuser"},
        ),
    ] = None
    launcher_runs_training: Annotated[bool, doc("The launcher takes processes like a worker, the first ones.")] = False


class Scheduling(Base):
    """How a gang scheduler shall place the pods."""

    gang: Annotated[bool, doc("Place all pods together or none.")] = False
    queue: Annotated[Annotated[str, Meta(max_length=253)] | None, doc("Queue of the gang scheduler.")] = None
    priority_class_name: Annotated[Annotated[str, Meta(max_length=253)] | None, doc("PriorityClass of the pods.")] = (
        None
    )
    min_available: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_REPLICAS)] | None, doc("Fewest pods that are worth starting.")
    ] = None
    timeout_seconds: Annotated[
        Annotated[int, Meta(ge=1, le=604_800)] | None, doc("How long to wait for the gang to be placed.")
    ] = None


Seconds = Annotated[int, Meta(ge=1, le=315_360_000)]


class Spec(Base, kw_only=True):
    """What the user asks for."""

    framework: Annotated[
        Framework,
        doc("The framework that the pods run. Immutable."),
    ]
    template: Annotated[PodTemplate | None, doc("Pod template of every role that has none of its own.")] = None
    master: Annotated[Role | None, doc("PyTorch's leader; without it worker 0 leads. At most 1 replica.")] = None
    chief: Annotated[Role | None, doc("TensorFlow's leader; without it worker 0 leads. At most 1 replica.")] = None
    launcher: Annotated[Role | None, doc("Runs `mpirun` or `horovodrun`. 1 replica.")] = None
    ps: Annotated[Role | None, doc("TensorFlow's parameter servers.")] = None
    evaluator: Annotated[Role | None, doc("TensorFlow's evaluator. At most 1 replica.")] = None
    worker: Annotated[
        Role, doc("The workers. `replicas` may be 0 only beside a master or chief; edit it to resize the job.")
    ] = field(default_factory=Role)
    procs_per_node: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_PROCS)] | Literal["auto"],
        doc(
            "Training processes a pod. `auto`: as many as the main container asks for accelerators, 1 where it asks "
            "for none."
        ),
    ] = "auto"
    checkpoints: Annotated[Checkpoints | None, doc("Where training state outlives a pod.")] = None
    elastic: Annotated[
        Elastic | None,
        later(
            "Lets the job go on while workers come and go.",
            "an edit of spec.worker.replicas restarts the job at the new size",
        ),
    ] = None
    restart: Annotated[Restart, doc("What happens when a pod fails.")] = field(default_factory=Restart)
    success: Annotated[
        Literal["Leader", "AllWorkers"],
        doc("`Leader`: the master, chief or launcher, else worker 0, exits with 0. `AllWorkers`: every worker does."),
    ] = "Leader"
    grace_seconds: Annotated[
        int,
        doc(
            "How long the other pods may take to finish by themselves once the job has succeeded, before `cleanPods` "
            "applies to them.",
            ge=0,
            le=86_400,
        ),
    ] = 30
    clean_pods: Annotated[Literal["Running", "All", "None"], doc("Which pods are deleted when the job has ended.")] = (
        "Running"
    )
    keep_on_failure: Annotated[
        bool, doc("Keeps the pods that ended of a job that failed, whatever `cleanPods` says, so that their logs stay.")
    ] = False
    ttl_seconds_after_finished: Annotated[
        Annotated[int, Meta(ge=0, le=315_360_000)] | None,
        doc("Seconds after its end at which the job is deleted; it stays where absent."),
    ] = None
    active_deadline_seconds: Annotated[
        Seconds | None,
        doc("Seconds that the job may be active; the clock stands still while suspended."),
    ] = None
    startup_deadline_seconds: Annotated[
        Seconds | None, doc("Seconds from the start of a round that all its pods may take to run.")
    ] = None
    progress_deadline_seconds: Annotated[
        Seconds | None,
        doc(
            "Seconds that may pass without a new step in the leader's progress lines while all pods run; then the job "
            "restarts, charged. Choose several times the pace at which logs are read (30 s)."
        ),
    ] = None
    capture_logs: Annotated[
        bool,
        later(
            "Copies the last lines of a failed pod's log into the status.",
            "kubectl logs reads them while spec.keepOnFailure keeps the pod",
        ),
    ] = False
    suspend: Annotated[
        bool,
        doc("Deletes the pods and keeps the job; set back to resume."),
    ] = False
    network: Annotated[
        Literal["Pod", "Host"], doc("`Host`: the pods share their node's network, with ports of their own.")
    ] = "Pod"
    shared_memory: Annotated[
        str,
        doc(
            "Size of `/dev/shm`: `auto` (bounded by the pod's memory only) or a quantity such as `8Gi`. "
            "A template that mounts `/dev/shm` itself is left as it is.",
            pattern=r"^(auto|[1-9][0-9]*(\.[0-9]+)?([KMGT]i?|k)?)$",
            max_length=32,
            extra={"hint": "auto or a size such as 8Gi"},
        ),
    ] = "auto"
    mpi: Annotated[Mpi | None, doc("Settings of MPI and Horovod jobs.")] = None
    scheduling: Annotated[
        Scheduling | None,
        later(
            "How a gang scheduler shall place the pods.",
            "schedulerName and priorityClassName may stand in the pod template",
        ),
    ] = None
    managed_by: Annotated[
        str, doc("The controller that acts on this job. Immutable.", min_length=1, max_length=253)
    ] = MANAGED_BY
    debug: Annotated[bool, doc("Turns on the frameworks' debug logs.")] = False


# ---------------------------------------------------------------------------------------------- status


class Condition(Base, kw_only=True, omit_defaults=False):
    """A condition in Kubernetes' style."""

    type: Annotated[ConditionType, doc("What the condition is about.")]
    status: Annotated[Literal["True", "False", "Unknown"], doc("Whether it holds.")]
    reason: Annotated[str, doc("One word for programs.", max_length=1024)]
    message: Annotated[str, doc("Plain words for people.", max_length=32_768)] = ""
    last_transition_time: Annotated[str, doc("When `status` changed last, RFC 3339.")] = ""
    observed_generation: Annotated[int, doc("Generation of the spec that this is about.")] = 0


class RoleStatus(Base):
    """What the operator has of one role."""

    replicas: Annotated[int, doc("Pods of this role in the world of the current round.")] = 0
    ready: Annotated[int, doc("Pods that run and are ready.")] = 0
    succeeded: Annotated[int, doc("Pods that ended with success.")] = 0
    failed: Annotated[int, doc("Pods that failed in the current round.")] = 0
    completed: Annotated[
        str, doc("Indexes that ended with success in the current round, as ranges such as `0-311,313`.")
    ] = ""
    rounds: Annotated[
        dict[str, str], doc("Slots whose pod is of another round than the job's: round to indexes as ranges.")
    ] = field(default_factory=dict)


class Failure(Base, kw_only=True, omit_defaults=False):
    """A pod's failure."""

    pod: Annotated[str, doc("Name of the pod.")]
    uid: Annotated[str, doc("UID of the pod.")]
    role: Annotated[str, doc("Role of the pod.")]
    index: Annotated[int, doc("Index within the role, from 0.")]
    round: Annotated[int, doc("Round that the pod belonged to.")]
    node: Annotated[str, doc("Node that it ran on.")] = ""
    reason: Annotated[str, doc("Why, in one word, such as `OOMKilled`.")] = ""
    exit_code: Annotated[int | None, doc("Exit code of the main container; absent where it did not exit.")] = None
    time: Annotated[str, doc("When it was seen, RFC 3339.")] = ""
    charged: Annotated[bool, doc("Whether it counts against `restart.limit`.")] = False


class Checkpoint(Base):
    """The newest durable checkpoint that the training reported."""

    step: Annotated[int, doc("Optimizer step.")] = 0
    round: Annotated[int, doc("Round that wrote it.")] = 0


class Progress(Base):
    """What the leader last printed of its training."""

    round: Annotated[int, doc("Round that printed it.")] = 0
    rank: Annotated[int, doc("Rank that printed it.")] = 0
    world_size: Annotated[int, doc("Processes that train together, as the training saw it.")] = 0
    epoch: Annotated[int, doc("Epoch, from 1.")] = 0
    epochs: Annotated[int, doc("Epochs in all.")] = 0
    step: Annotated[int, doc("Optimizer steps done.")] = 0
    of: Annotated[int, doc("Optimizer steps in all.")] = 0
    loss: Annotated[float | None, doc("Training loss.")] = None
    accuracy: Annotated[float | None, doc("Validation accuracy, 0 to 1.")] = None
    samples_per_second: Annotated[float | None, doc("Samples a second, all ranks together.")] = None
    checkpoint: Annotated[Checkpoint | None, doc("Newest durable checkpoint.")] = None
    time: Annotated[float, doc("When it was printed, seconds since 1970.")] = 0.0


class Status(Base):
    """What the operator has seen and done."""

    state: Annotated[State, doc("The one word for where the job is.", extra={"filled": True})] = "Pending"
    message: Annotated[str, doc("The same in plain words.", max_length=4096)] = ""
    conditions: Annotated[
        list[Condition],
        doc("The same for programs, one of each type.", extra={"map_keys": ["type"]}),
    ] = field(default_factory=list)
    observed_generation: Annotated[int, doc("Generation of the spec that the status is about.")] = 0
    round: Annotated[int, doc("The current world; +1 at each restart or resize. 0 before the first.")] = 0
    round_time: Annotated[str | None, doc("When the current round began, RFC 3339.")] = None
    round_cause: Annotated[RoundCause | None, doc("Why the current round began.")] = None
    world_size: Annotated[int, doc("Processes that the current round trains with.")] = 0
    launched: Annotated[int, doc("Last round of which every pod has been created.")] = 0
    restarts: Annotated[int, doc("Restarts charged over the job's life.", extra={"filled": True})] = 0
    restarts_in_a_row: Annotated[int, doc("Restarts charged since the last progress; `restart.limit` bounds it.")] = 0
    restart_checkpoint: Annotated[int, doc("Checkpoint step known at the last charged restart.")] = 0
    failures: Annotated[list[Failure], doc("The last failures, newest last.", max_length=20)] = field(
        default_factory=list
    )
    selector: Annotated[str, doc("Label selector of the worker pods, for the scale subresource.")] = ""
    ready: Annotated[str, doc("Ready pods of all, such as `3/4`.")] = ""
    master: Annotated[RoleStatus | None, doc("The master's pods.")] = None
    chief: Annotated[RoleStatus | None, doc("The chief's pods.")] = None
    launcher: Annotated[RoleStatus | None, doc("The launcher's pods.")] = None
    ps: Annotated[RoleStatus | None, doc("The parameter servers' pods.")] = None
    evaluator: Annotated[RoleStatus | None, doc("The evaluator's pods.")] = None
    worker: Annotated[RoleStatus | None, doc("The workers' pods.")] = None
    start_time: Annotated[str | None, doc("When the job was taken up, RFC 3339.")] = None
    running_time: Annotated[str | None, doc("When all pods of a world first ran, RFC 3339.")] = None
    active_seconds: Annotated[int, doc("Seconds that the job was active before its last suspension.")] = 0
    active_since: Annotated[str | None, doc("Since when it has been active again, RFC 3339.")] = None
    completion_time: Annotated[str | None, doc("When the job ended, RFC 3339.")] = None
    progress: Annotated[Progress | None, doc("What the leader last printed of its training.")] = None
    progress_time: Annotated[str | None, doc("When the training was last seen to have moved, RFC 3339.")] = None
    progress_text: Annotated[str, doc("Progress in short, such as `epoch 3/5, 60%`.", max_length=64)] = ""
    result: Annotated[dict[str, Any] | None, doc("Final numbers that the leader left in its termination message.")] = (
        None
    )


class OwnerReference(Base, kw_only=True):
    """The part of an owner reference that names the owner."""

    uid: str
    kind: str = ""
    name: str = ""
    controller: bool = False


class Metadata(Base, kw_only=True):
    """The part of an object's metadata that the control loop reads."""

    name: str
    namespace: str = "default"
    uid: str = ""
    resource_version: str = "0"
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    owner_references: list[OwnerReference] = field(default_factory=list)


class Job(Base, kw_only=True):
    """A DistTrainJob: the object as the control loop keeps it."""

    metadata: Metadata
    spec: Spec
    status: Status = field(default_factory=Status)

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.metadata.namespace, self.metadata.name

    def role(self, name: str) -> Role | None:
        """The role as the user wrote it; None where it is not written."""
        role: Role | None = getattr(self.spec, name)
        return role

    def role_status(self, name: str) -> RoleStatus:
        """The role's status, empty where nothing is known."""
        status: RoleStatus | None = getattr(self.status, name)
        return status or RoleStatus()
