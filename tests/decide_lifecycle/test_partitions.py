"""A task's partitionPolicy: sub-groups in the PodGroup, partition ids on pods."""

import pytest

from muster.decide.lifecycle.jobspec import Task
from muster.decide.lifecycle.vcjob_objects import PARTITION_ID, TASK_SPEC
from muster.model.pods import Requirement, TopologyWish
from muster.model.workloads import SubGroup
from tests.decide_lifecycle.world import PODGROUPS, PODS, VCJOBS, World, job_document

TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "registry.example.com/x:1"}]}}


def partitioned(**policy):
    return {
        "partitionSize": 2,
        "totalPartitions": 3,
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    } | policy


@pytest.mark.parametrize(
    ("task", "minimum"),
    [
        pytest.param(Task(replicas=6, partition_policy=partitioned()), 6, id="without a minimum all partitions"),
        pytest.param(Task(replicas=6, partition_policy=partitioned(minPartitions=2)), 4, id="so many partitions"),
        pytest.param(
            Task(replicas=6, min_available=3, partition_policy=partitioned(minPartitions=1)), 3, id="its own wins"
        ),
    ],
)
def test_the_minimum_of_a_task_in_partitions(task, minimum):
    assert task.minimum == minimum


def started(**policy):
    world = World()
    task = {"name": "w", "replicas": 6, "template": TEMPLATE, "partitionPolicy": partitioned(**policy)}
    world.put(VCJOBS, job_document(tasks=[task]))
    world.settle()
    return world


def test_partitions_become_a_sub_group_policy_and_ids_on_the_pods():
    world = started(minPartitions=2)
    (group,) = [found for (kind, _, _), found in world.objects.items() if kind == PODGROUPS]
    assert group["spec"]["minMember"] == 4
    selector = (Requirement(key=TASK_SPEC, operator="In", values=("w",)),)
    assert world.group().sub_groups == (
        SubGroup(
            name="w",
            size=2,
            minimum=2,
            labels=selector,
            match_label_keys=(TASK_SPEC, PARTITION_ID),
            topology=TopologyWish(required_tier=1),
        ),
    )
    pods = [found for (kind, _, _), found in world.objects.items() if kind == PODS]
    assert sorted(pod["metadata"]["labels"][PARTITION_ID] for pod in pods) == ["0", "0", "1", "1", "2", "2"]


def test_a_settled_job_in_partitions_changes_nothing_more():
    world = started()
    assert world.actions() == ()
