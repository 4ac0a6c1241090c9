"""Train a small network on real data, alone or distributed: an entrypoint to run as it is, or to copy.

One process:
    python -m disttrain_training.pytorch.train --epochs=5
Two on this machine:
    torchrun --standalone --nproc-per-node=2 -m disttrain_training.pytorch.train --epochs=5
In the pods of a job, whose environment says who and where (with one process a pod, plain `python -m` works too):
    torchrun -m disttrain_training.pytorch.train --epochs=5
By hand, on machine i of 3:
    RANK=i WORLD_SIZE=3 MASTER_ADDR=first MASTER_PORT=29500 python -m disttrain_training.pytorch.train --epochs=5

With the same seed and global batch the losses are those of one process, whatever the number of workers. Killed or
stopped, it goes on from its newest checkpoint (--checkpoint-dir). On SIGTERM it finishes the step, writes a checkpoint
and exits with 143.
"""

from __future__ import annotations

import math
import os
import time
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset

from .. import shutdown
from ..checkpoint import Checkpoint, Checkpoints, CheckpointWriter, job_round
from ..data import digits
from ..progress import Progress
from ..sampling import GlobalBatchSampler, Indices, shard
from ..shutdown import Refused
from . import options, snapshot
from .distributed import World, joined
from .metrics import Tally
from .options import Options
from .seeds import deterministic, seed_everything


class Images(Dataset[tuple[Tensor, Tensor]]):
    """Images and labels by the indices of a whole batch at once."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels

    def __getitem__(self, indices: Indices) -> tuple[Tensor, Tensor]:
        which = torch.from_numpy(indices)
        return self.images[which], self.labels[which]


def build_model(dropout: float) -> nn.Module:
    """[n, 1, 8, 8] -> [n, 10]. No layer looks at other samples of the batch, so the batch can be split freely."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(64, 10),
    )


class Trainer:
    """One training: built, resumed where there is something to resume, then `fit`."""

    def __init__(self, options: Options, world: World, stop: shutdown.StopRequest) -> None:
        options.check(world.device)
        self.options, self.world, self.stop = options, world, stop
        self.progress = Progress(rank=world.rank, local_rank=world.local_rank, world_size=world.size)
        if options.deterministic:
            deterministic()

        data = digits()
        train = Images(torch.from_numpy(data.train_images), torch.from_numpy(data.train_labels))
        self.held_out = Images(torch.from_numpy(data.held_out_images), torch.from_numpy(data.held_out_labels))
        batch = options.global_batch(world.size)
        self.sampler = GlobalBatchSampler(
            len(data.train_labels), batch, rank=world.rank, world_size=world.size, seed=options.seed
        )
        # A generator of its own: else each pass over the loader would draw from the state that dropout uses.
        self.loader = DataLoader(train, sampler=self.sampler, batch_size=None, generator=torch.Generator())

        seed_everything(options.seed)  # the same weights everywhere ...
        self.module = build_model(options.dropout).to(world.device)
        self.model = DistributedDataParallel(self.module) if world.size > 1 else self.module
        self.settle(train.images[:1])
        seed_everything(options.seed + world.rank)  # ... but dropout of its own on each rank
        self.optimizer = torch.optim.SGD(
            self.module.parameters(), lr=options.learning_rate(world.size), momentum=options.momentum
        )
        self.scaler = torch.amp.GradScaler(world.device.type, enabled=options.precision == "fp16")
        self.precision = torch.autocast(
            world.device.type,
            dtype=torch.float16 if options.precision == "fp16" else torch.bfloat16,
            enabled=options.precision != "fp32",
        )

        self.position = snapshot.Position()
        self.of = self.steps_in_all()
        self.schedule = LambdaLR(self.optimizer, lambda step: self.learning_rate_factor(step))
        self.parts: dict[str, snapshot.Stateful] = {
            "model": self.module,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "scaler": self.scaler,
            "sampler": self.sampler,
        }
        self.loss = math.nan
        self.rate = 0.0  # samples a second, all ranks together, in the current epoch
        self.validated: Tally | None = None  # of the last validation
        self.saved: Checkpoint | None = None  # the newest durable checkpoint
        self.writer = self.open_checkpoints()  # on rank 0
        if options.resume:
            self.resume()
        self.progress.say(
            f"{world.size} {'process' if world.size == 1 else 'processes'} on {world.device.type}, "
            f"{self.sampler.count} images, {batch} a step, {self.of} steps in {options.epochs} epochs"
        )

    def settle(self, images: Tensor) -> None:
        """A pass without effect: DDP lays out its gradients anew after the first one, and with them the order of sums.

        Without it the first step after a resume would round differently than the same step of an undisturbed run.
        """
        (self.model(images.to(self.world.device)).sum() * 0).backward()
        self.module.zero_grad()

    def steps_in_all(self) -> int:
        """Steps done and steps left. Steps before a resize may have been of another size: they count as they were."""
        at, size, batch = self.position, self.sampler.count, self.sampler.global_batch
        later_epochs = self.options.epochs - at.epoch - 1
        left = math.ceil((size - at.samples) / batch) + later_epochs * math.ceil(size / batch)
        steps = at.step + (left if later_epochs >= 0 else 0)
        return max(at.step, min(steps, self.options.max_steps or steps))

    def learning_rate_factor(self, step: int) -> float:
        """Warm-up, then half a cosine down to 0 at the last step."""
        warmup = min(1.0, (step + 1) / max(1, self.options.warmup_steps))
        return warmup * 0.5 * (1 + math.cos(math.pi * min(step, self.of) / self.of))

    def fit(self) -> int:
        """Train to the end, or until a stop is asked for. Returns the exit code."""
        while self.position.step < self.of:
            self.sampler.set_epoch(self.position.epoch, start=self.position.samples)
            self.model.train()
            done, began = 0, time.monotonic()
            for images, labels in self.loader:
                step_began = time.monotonic()
                count = self.sampler.batch_size_at(self.position.samples)
                share = self.train_step(images.to(self.world.device), labels.to(self.world.device), count)
                self.stop.wait(self.options.min_step_seconds - (time.monotonic() - step_began))
                # One small reduction a step: the loss over all ranks, and whether any of them was asked to stop.
                loss_sum, stopping = self.world.sum([share, float(self.stop.signal)])
                self.position.step += 1
                self.position.samples += count
                done += count
                self.loss, self.rate = loss_sum / count, done / (time.monotonic() - began)
                self.report_step()
                if self.position.step == self.of or self.position.samples == self.sampler.count:
                    break
                if stopping:
                    return self.stop_early()
                if self.options.checkpoint_every and self.position.step % self.options.checkpoint_every == 0:
                    self.save()
            self.end_epoch()
        self.finish()
        return 0

    def train_step(self, images: Tensor, labels: Tensor, count: int) -> float:
        """One optimizer step on this rank's share of a global batch of `count`. Returns the share's summed loss.

        DDP averages gradients over the ranks. With each rank's loss summed, times ranks, over the global count, that
        average is the gradient of the mean over the global batch, exactly, also where the shares differ in size.
        """
        total = torch.zeros((), device=self.world.device)
        pieces = self.options.accumulate
        for piece, (x, y) in enumerate(zip(images.tensor_split(pieces), labels.tensor_split(pieces), strict=True)):
            with self.reduced(piece == pieces - 1):
                with self.precision:
                    loss = cross_entropy(self.model(x), y, reduction="sum")
                self.scaler.scale(loss * (self.world.size / count)).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.schedule.step()
        return total.item()

    def reduced(self, now: bool) -> AbstractContextManager[object]:
        """DDP reduces the gradients in the last micro-batch of a step only; until then they add up where they are."""
        if isinstance(self.model, DistributedDataParallel) and not now:
            return self.model.no_sync()
        return nullcontext()

    @torch.no_grad()
    def validate(self) -> Tally:
        """Over every held-out image once: the ranks' shards are disjoint, sums and counts are added up."""
        self.module.eval()
        tally = Tally()
        mine = shard(len(self.held_out.labels), self.world.rank, self.world.size)
        for start in range(0, len(mine), 256):
            images, labels = (part.to(self.world.device) for part in self.held_out[mine[start : start + 256]])
            with self.precision:
                scores = self.module(images)
            correct = int((scores.argmax(dim=1) == labels).sum())
            tally.add(cross_entropy(scores.float(), labels, reduction="sum").item(), correct, len(labels))
        return tally.over(self.world)

    def end_epoch(self) -> None:
        """Of the run as well, where --max-steps ends it within an epoch."""
        tally = self.validated = self.validate()
        epoch = self.position.epoch + 1
        if self.position.samples == self.sampler.count:
            self.position.epoch, self.position.samples = epoch, 0
        self.save(score=tally.accuracy)
        self.progress.say(
            f"epoch {epoch}/{self.options.epochs}  step {self.position.step}/{self.of}  loss {self.loss:.4f}  "
            f"held-out loss {tally.loss:.4f}  accuracy {tally.accuracy:.4f}  {self.rate:.0f} samples/s"
        )
        self.progress.report(self.facts(epoch), now=True)

    def stop_early(self) -> int:
        self.save()
        kept = f"checkpoint {self.saved.name} is written" if self.saved else "nothing is kept (no --checkpoint-dir)"
        self.progress.say(f"asked to stop: ended after step {self.position.step}/{self.of}; {kept}")
        self.progress.report(self.facts(), now=True)
        return self.stop.exit_code

    def finish(self) -> None:
        tally = self.validated = self.validated or self.validate()  # not yet, where a finished training is resumed
        sha256 = snapshot.weights_sha256(self.module)
        # One write, newline and all: under torchrun the ranks of a pod share one pipe, and would mix their lines.
        print(f"weights sha256 {sha256} rank {self.world.rank}\n", end="", flush=True)
        self.progress.say(f"accuracy {tally.accuracy:.4f} ({tally.correct} of {tally.count} held-out images)")
        result = {"accuracy": tally.accuracy, "loss": tally.loss, "samples": tally.count, "weightsSha256": sha256}
        self.progress.report(self.facts(self.options.epochs) | {"result": result}, final=True)

    def report_step(self) -> None:
        if self.options.log_every and self.position.step % self.options.log_every == 0:
            self.progress.say(f"step {self.position.step}/{self.of}  loss {self.loss:.9f}")
        self.progress.report(self.facts())

    def facts(self, epoch: int | None = None) -> dict[str, object]:
        """What a progress line says; `epoch` where it is not the one worked on."""
        metrics = {"learningRate": self.schedule.get_last_lr()[0]}
        if self.validated:
            metrics["heldOutLoss"] = self.validated.loss
        return {
            "epoch": epoch or self.position.epoch + 1,
            "epochs": self.options.epochs,
            "step": self.position.step,
            "of": self.of,
            "loss": self.loss,
            "accuracy": self.validated.accuracy if self.validated else None,
            "samplesPerSecond": self.rate,
            "checkpoint": {"step": self.saved.step, "round": self.saved.round} if self.saved else None,
            "metrics": metrics,
        }

    def open_checkpoints(self) -> CheckpointWriter | None:
        """Rank 0 claims the folder for this round; the others have none to do with it."""
        options, round_ = self.options, job_round(os.environ)
        if options.checkpoint_dir is None:
            self.progress.say("no --checkpoint-dir: a restart begins at step 0")
            return None
        folder, writers = options.checkpoint_dir, []

        def claim() -> None:
            try:
                writer = CheckpointWriter(folder, round_=round_, keep_last=options.keep_last)
            except OSError as error:
                raise Refused(f"--checkpoint-dir: {error}. Give a folder that this user may write to") from error
            if not options.resume and any(checkpoint.round == writer.round for checkpoint in writer.all()):
                raise Refused(
                    f"--no-resume, but {folder} has checkpoints of this very round: give another --checkpoint-dir"
                )
            writers.append(writer)

        self.world.on_rank_0(claim)
        return writers[0] if writers else None

    def resume(self) -> None:
        def newest() -> tuple[Checkpoint, bytes] | None:
            found = self.writer.newest() if self.writer else None
            if found is None and self.options.resume_from:
                found = Checkpoints(self.options.resume_from).newest()
            return found

        self.saved = snapshot.resume(self.world, newest, self.parts, self.position)
        self.of = self.steps_in_all()
        if self.saved:
            self.progress.say(f"resumed from checkpoint {self.saved.name} at step {self.position.step}/{self.of}")

    def save(self, score: float | None = None) -> None:
        if self.options.checkpoint_dir:
            self.saved = snapshot.save(self.world, self.writer, self.parts, self.position, score)


@record
def main() -> int:
    """Returns the exit code. `record` leaves an exception where torchrun reads it."""
    chosen = options.parse()
    with joined(chosen.device, start_timeout=chosen.start_timeout, step_timeout=chosen.step_timeout) as world:
        stop = shutdown.StopRequest()
        stop.listen()
        return Trainer(chosen, world, stop).fit()


if __name__ == "__main__":
    shutdown.run(main)
