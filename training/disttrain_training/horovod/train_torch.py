"""Train a small PyTorch network on real data with Horovod: an entrypoint to run as it is, or to copy.

Two processes on this machine:
    horovodrun -np 2 python -m disttrain_training.horovod.train_torch
In the launcher of a job, either of
    disttrain-horovodrun python -m disttrain_training.horovod.train_torch
    mpirun python -m disttrain_training.horovod.train_torch

With the same seed and global batch the losses are those of one process, whatever the number of workers (not with
--compression or --adasum). Killed or stopped, it goes on from its newest checkpoint (--checkpoint-dir).
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path

import horovod.torch as hvd
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import LambdaLR

from .. import shutdown
from ..checkpoint import Checkpoint, CheckpointWriter, job_round
from ..data import digits
from ..flags import add_checkpoint_flags, add_running_flags, number
from ..progress import Progress
from ..pytorch import snapshot
from ..pytorch.metrics import Tally
from ..pytorch.seeds import seed_everything
from ..pytorch.train import build_model
from ..sampling import GlobalBatchSampler, shard
from ..shutdown import Refused
from .world import HorovodWorld, joined


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Flags; wrong ones end the process with code 2 and a message."""
    parser = argparse.ArgumentParser(
        prog="disttrain_training.horovod.train_torch",
        description="Trains a small convolutional network on scikit-learn's digits, with Horovod.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--epochs", type=number(int, 1), default=5, help="5 reach an accuracy of about 0.98")
    parser.add_argument("--max-steps", type=number(int, 1), help="end after so many optimizer steps")
    parser.add_argument("--global-batch-size", type=number(int, 1), default=24, help="samples a step, over all workers")
    parser.add_argument("--lr", type=number(float, 0, 1e6), default=0.06, help="the peak: a cosine then falls to 0")
    parser.add_argument("--momentum", type=number(float, 0, 0.99), default=0.9, help="of SGD")
    parser.add_argument("--warmup-steps", type=number(int, 0), default=10, help="steps in which the rate rises from 0")
    parser.add_argument("--seed", type=number(int, 0), default=0, help="of weights and order")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: CUDA if there is any")
    reducing = parser.add_argument_group("reducing")
    reducing.add_argument("--compression", choices=("none", "fp16"), default="none", help="of gradients on their way")
    reducing.add_argument(
        "--backward-passes-per-step", type=number(int, 1), default=1, help="micro-batches between two reductions"
    )
    reducing.add_argument("--adasum", action="store_true", help="combine gradients by Adasum (needs MPI or NCCL)")
    reducing.add_argument("--timeline", type=Path, help="write rank 0's timeline there, for chrome://tracing")
    add_checkpoint_flags(parser)
    add_running_flags(parser)
    return parser.parse_args(arguments)


class Trainer:
    """One training: built, resumed where there is something to resume, then `fit`."""

    def __init__(self, options: argparse.Namespace, world: HorovodWorld, stop: shutdown.StopRequest) -> None:
        if options.adasum and not (hvd.mpi_enabled() or hvd.nccl_built()):
            raise Refused("--adasum needs MPI or NCCL: start with mpirun, or with horovodrun --mpi")
        self.options, self.world, self.stop = options, world, stop
        # The leader is the launcher's pod, whose log shows what rank 0 prints, whatever pod that runs in.
        environ = {name: value for name, value in os.environ.items() if name != "DISTTRAIN_LEADER"}
        self.progress = Progress(rank=world.rank, local_rank=world.local_rank, world_size=world.size, environ=environ)
        data = digits()
        to_device = [torch.from_numpy(part).to(world.device) for part in data]
        self.images, self.labels, self.held_out_images, self.held_out_labels = to_device
        self.sampler = GlobalBatchSampler(
            len(self.labels), options.global_batch_size, rank=world.rank, world_size=world.size, seed=options.seed
        )
        seed_everything(options.seed)
        self.model: nn.Module = build_model(dropout=0.0).to(world.device)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=options.lr, momentum=options.momentum)
        # One rank's weights and optimizer for all, whatever each was seeded or loaded with.
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        self.optimizer = hvd.DistributedOptimizer(
            optimizer,
            named_parameters=self.model.named_parameters(),
            compression=hvd.Compression.fp16 if options.compression == "fp16" else hvd.Compression.none,
            backward_passes_per_step=options.backward_passes_per_step,
            op=hvd.Adasum if options.adasum else hvd.Average,
        )
        steps = options.epochs * math.ceil(self.sampler.count / self.sampler.global_batch)
        self.of = min(steps, options.max_steps or steps)
        self.schedule = LambdaLR(self.optimizer, self.learning_rate_factor)
        self.position = snapshot.Position()
        self.parts: dict[str, snapshot.Stateful] = {
            "model": self.model,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "sampler": self.sampler,
        }
        self.loss, self.rate = math.nan, 0.0
        self.validated: Tally | None = None
        self.saved: Checkpoint | None = None
        self.writer: CheckpointWriter | None = None
        if options.checkpoint_dir:
            self.open_checkpoints()
        self.progress.say(
            f"{world.size} Horovod {'process' if world.size == 1 else 'processes'} on {world.device.type} over "
            f"{'MPI' if hvd.mpi_enabled() else 'gloo'}, {self.of} steps in {options.epochs} epochs"
        )

    def open_checkpoints(self) -> None:
        """Rank 0 claims the folder and reads the newest; every rank gets what it read."""
        folder, writers = self.options.checkpoint_dir, []

        def claim() -> None:
            try:
                writers.append(CheckpointWriter(folder, round_=job_round(os.environ), keep_last=self.options.keep_last))
            except OSError as error:
                raise Refused(f"--checkpoint-dir: {error}. Give a folder that this user may write to") from error

        self.world.on_rank_0(claim)
        self.writer = writers[0] if writers else None
        if self.options.resume:
            newest = lambda: self.writer.newest() if self.writer else None  # noqa: E731
            self.saved = snapshot.resume(self.world, newest, self.parts, self.position)
            if self.saved:
                self.progress.say(f"resumed from checkpoint {self.saved.name} at step {self.position.step}/{self.of}")

    def learning_rate_factor(self, step: int) -> float:
        """Warm-up, then half a cosine down to 0 at the last step."""
        warmup = min(1.0, (step + 1) / max(1, self.options.warmup_steps))
        return float(warmup * 0.5 * (1 + math.cos(math.pi * min(step, self.of) / self.of)))

    def fit(self) -> int:
        """Train to the end, or until a stop is asked for. Returns the exit code."""
        while self.position.step < self.of:
            self.sampler.set_epoch(self.position.epoch, start=self.position.samples)
            self.model.train()
            done, began = 0, time.monotonic()
            for mine in self.sampler:
                step_began = time.monotonic()
                count = self.sampler.batch_size_at(self.position.samples)
                share = self.train_step(torch.from_numpy(mine).to(self.world.device), count)
                self.stop.wait(self.options.min_step_seconds - (time.monotonic() - step_began))
                # One small reduction a step: the loss over all ranks, and whether any of them was asked to stop.
                loss_sum, stopping = self.world.sum([share, float(self.stop.signal)])
                self.position.step += 1
                self.position.samples += count
                done += count
                self.loss, self.rate = loss_sum / count, done / (time.monotonic() - began)
                if self.options.log_every and self.position.step % self.options.log_every == 0:
                    self.progress.say(f"step {self.position.step}/{self.of}  loss {self.loss:.9f}")
                self.progress.report(self.facts())
                if self.position.step == self.of or self.position.samples == self.sampler.count:
                    break
                if stopping:
                    self.save()
                    self.progress.say(f"asked to stop: ended after step {self.position.step}/{self.of}")
                    return self.stop.exit_code
                if self.options.checkpoint_every and self.position.step % self.options.checkpoint_every == 0:
                    self.save()
            self.end_epoch()
        self.finish()
        return 0

    def train_step(self, mine: torch.Tensor, count: int) -> float:
        """One optimizer step on this rank's share of a global batch of `count`. Returns the share's summed loss.

        Horovod averages gradients over the ranks. With each rank's loss summed, times ranks, over the global count,
        that average is the gradient of the mean over the global batch, also where the shares differ in size. Adasum
        combines gradients as if each were a whole step, so there each rank takes the mean over its own share.
        """
        scale = 1 / max(1, len(mine)) if self.options.adasum else self.world.size / count
        total = 0.0
        for piece in mine.tensor_split(self.options.backward_passes_per_step):
            loss = cross_entropy(self.model(self.images[piece]), self.labels[piece], reduction="sum")
            (loss * scale).backward()  # type: ignore[no-untyped-call]  # the optimizer's hooks count the passes, and reduce in the last one
            total += loss.item()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        return total

    @torch.no_grad()
    def validate(self) -> Tally:
        """Over every held-out image once. Sums and counts are added up: a mean of the ranks' means would be wrong,
        since their shards differ in size."""
        self.model.eval()
        mine = torch.from_numpy(shard(len(self.held_out_labels), self.world.rank, self.world.size))
        labels = self.held_out_labels[mine]
        scores = self.model(self.held_out_images[mine])
        tally = Tally()
        correct = int((scores.argmax(dim=1) == labels).sum())
        tally.add(cross_entropy(scores, labels, reduction="sum").item(), correct, len(labels))
        return tally.over(self.world)

    def end_epoch(self) -> None:
        tally = self.validated = self.validate()
        epoch = self.position.epoch + 1
        if self.position.samples == self.sampler.count:
            self.position.epoch, self.position.samples = epoch, 0
        self.save(score=tally.accuracy)
        self.progress.say(
            f"epoch {epoch}/{self.options.epochs}  step {self.position.step}/{self.of}  loss {self.loss:.4f}  "
            f"held-out loss {tally.loss:.4f}  accuracy {tally.accuracy:.4f}  {self.rate:.0f} samples/s"
        )
        self.progress.report(self.facts() | {"epoch": epoch}, now=True)

    def finish(self) -> None:
        tally = self.validated = self.validated or self.validate()
        sha256 = snapshot.weights_sha256(self.model)
        print(f"weights sha256 {sha256} rank {self.world.rank}", flush=True)
        self.progress.say(f"accuracy {tally.accuracy:.4f} ({tally.correct} of {tally.count} held-out images)")
        result = {"accuracy": tally.accuracy, "loss": tally.loss, "samples": tally.count, "weightsSha256": sha256}
        facts = self.facts() | {"epoch": self.options.epochs, "result": result}
        self.progress.report(facts, final=True)

    def facts(self) -> dict[str, object]:
        """What a progress line says."""
        return {
            "epoch": self.position.epoch + 1,
            "epochs": self.options.epochs,
            "step": self.position.step,
            "of": self.of,
            "loss": self.loss,
            "accuracy": self.validated.accuracy if self.validated else None,
            "samplesPerSecond": self.rate,
            "checkpoint": {"step": self.saved.step, "round": self.saved.round} if self.saved else None,
        }

    def save(self, score: float | None = None) -> None:
        if self.options.checkpoint_dir:
            self.saved = snapshot.save(self.world, self.writer, self.parts, self.position, score)


def main() -> int:
    """Returns the exit code."""
    options = parse()
    if options.timeline:
        os.environ["HOROVOD_TIMELINE"] = str(options.timeline)  # read by hvd.init()
    with joined(options.device) as world:
        stop = shutdown.StopRequest()
        stop.listen()
        return Trainer(options, world, stop).fit()


if __name__ == "__main__":
    shutdown.run(main)
