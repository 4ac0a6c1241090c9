"""`procsPerNode: auto`, by table."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import job

from disttrain.frameworks.accelerators import Undecided, processes


def template(**container: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", **container}]}}


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({}, 1),
        ({"cpu": "64", "memory": "1Ti", "hugepages-2Mi": "1Gi", "ephemeral-storage": "1Gi"}, 1),
        ({"nvidia.com/gpu": 8}, 8),
        ({"nvidia.com/gpu": "8"}, 8),
        ({"nvidia.com/mig-1g.5gb": 2, "nvidia.com/mig-2g.10gb": 1}, 3),
        ({"nvidia.com/gpu": 4, "rdma/hca": 1, "vpc.amazonaws.com/efa": 32}, 4),
        ({"amd.com/gpu": 2}, 2),
        ({"gpu.intel.com/xe": 2}, 2),
        ({"habana.ai/gaudi": 8}, 8),
        ({"aws.amazon.com/neuroncore": 2}, 2),
        ({"google.com/tpu": 4}, 4),
        ({"huawei.com/Ascend910": 8}, 8),
        ({"nvidia.com/gpu": 0}, 1),
    ],
)
def test_counted(asked: dict[str, Any], count: int) -> None:
    assert processes(job().spec, template(resources={"limits": asked})) == count
    assert processes(job().spec, template(resources={"requests": asked})) == count


@pytest.mark.parametrize(
    "container",
    [
        {"resources": {"limits": {"acme.com/warp": 1}}},
        {"resources": {"claims": [{"name": "gpu"}]}},
        {"resources": {"limits": {"nvidia.com/gpu": "1.5"}}},
    ],
)
def test_undecided_says_what_to_write(container: dict[str, Any]) -> None:
    with pytest.raises(Undecided, match="set procsPerNode to"):
        processes(job().spec, template(**container))
    assert processes(job({"procsPerNode": 2}).spec, template(**container)) == 2
