import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.decide.assignment import CARDS, GPU_INDEX, assignment_annotations, cards_from_annotations
from muster.decide.cards import asked_by, memory_doubt, normalise_containers
from muster.model.instructions import Slot
from muster.model.nodes import CardMode, Node
from muster.model.pods import CardUse, Request, Share


def template(limits=None, requests=None, **others):
    resources = {name: amounts for name, amounts in (("limits", limits), ("requests", requests)) if amounts is not None}
    return {"spec": {"containers": [{"name": "c", "image": "x", "resources": resources, **others}]}}


def limits_after(limits, **options):
    normal = normalise_containers(template(limits), **options)
    return normal.template["spec"]["containers"][0].get("resources", {}).get("limits", {}), normal


FORMS = {
    "a whole card stays": ({"nvidia.com/gpu": 2}, {"nvidia.com/gpu": 2}, 0),
    "a card beside a share goes, with a note": (
        {"nvidia.com/gpu": 1, "volcano.sh/gpu-memory": 5120}, {"volcano.sh/gpu-memory": 5120}, 1,
    ),
    "a zero card beside a share goes without a word": (
        {"nvidia.com/gpu": 0, "volcano.sh/gpu-memory": 5120}, {"volcano.sh/gpu-memory": 5120}, 0,
    ),
    "a zero card alone stays": ({"nvidia.com/gpu": 0}, {"nvidia.com/gpu": 0}, 0),
    "spellings in circulation are read as the known one": (
        {"volcano.sh/gpu-cores": 30, "volcano.sh/gpu-mem": 4096}, {"volcano.sh/gpu-core": 30, "volcano.sh/gpu-memory": 4096}, 2,
    ),
    "letters of either case": ({"Volcano.sh/GPU-Memory": 4096}, {"volcano.sh/gpu-memory": 4096}, 1),
    "core as a percentage": ({"volcano.sh/gpu-core.percentage": 25}, {"volcano.sh/gpu-core": 25}, 1),
    "vgpu words stay": ({"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 4096}, {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 4096}, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_template_gets_one_form(name):
    limits, expected, notes = FORMS[name]
    after, normal = limits_after(limits)
    assert (after, len(normal.notes), normal.problems) == (expected, notes, ())


MISTAKES = {
    "GiB": ({"volcano.sh/gpu-memory": 12}, "12 is 12 MiB; a card here has 81920. Did you mean 12288 (12 GiB)?"),
    "GiB as large as the card": ({"volcano.sh/gpu-memory": "80"}, "Did you mean 81920 (80 GiB)?"),
    "bytes": ({"volcano.sh/gpu-memory": "12Gi"}, "Did you mean 12288 (12 GiB)?"),
    "a fraction of the core": ({"volcano.sh/gpu-core": "0.3"}, "Did you mean 30 (30 %)?"),
    "more core than a card has": ({"volcano.sh/gpu-core": 130}, "above 100 percent"),
    "half a card": ({"nvidia.com/gpu": "0.5"}, "not a whole number"),
    "no quantity": ({"volcano.sh/gpu-memory": "much"}, "is not a quantity"),
    "less than nothing": ({"nvidia.com/gpu": -1}, "below 0"),
    "two cards beside a share": ({"nvidia.com/gpu": 2, "volcano.sh/gpu-memory": 4096}, "one share of one card"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_an_amount_that_nobody_means_is_a_problem_with_the_likely_meaning(name):
    limits, message = MISTAKES[name]
    _, normal = limits_after(limits, largest_card_mib=81920)
    assert [problem for problem in normal.problems if message in problem.message], normal.problems
    assert all(problem.field.startswith("spec.containers[0].resources.limits[") for problem in normal.problems)


@pytest.mark.parametrize("amount", [1024, 5120, 12288, 81920, 131072])
def test_usual_amounts_are_plausible(amount):
    assert memory_doubt(amount, smallest=64, largest=81920) == ""


@given(
    st.dictionaries(
        st.sampled_from(["nvidia.com/gpu", "volcano.sh/gpu-memory", "volcano.sh/gpu-cores", "cpu"]), st.integers(0, 1)
    )
)
def test_a_second_pass_changes_nothing_and_the_first_does_not_touch_what_it_was_given(limits):
    given_template = template(dict(limits))
    once = normalise_containers(given_template)
    assert given_template == template(limits)
    again = normalise_containers(once.template)
    assert (again.template, again.notes) == (once.template, ())


@pytest.mark.parametrize(
    ("amounts", "cards", "share"),
    [
        ({"nvidia.com/gpu": "2"}, 2, None),
        ({"nvidia.com/gpu": 1, "volcano.sh/gpu-memory": 10}, 0, Share(memory_mib=10)),
        ({"volcano.sh/gpu-core": 30}, 0, Share(core_percent=30)),
        ({"volcano.sh/gpu-number": 3}, 3, None),
        ({"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-cores": 50}, 0, Share(core_percent=50)),
        ({"volcano.sh/vgpu-number": 2, "volcano.sh/vgpu-memory": 50}, 0, Share(memory_mib=50, count=2)),
        ({"volcano.sh/vgpu-number": 2}, 2, None),
    ],
    ids=["whole cards", "the share wins", "core only", "cards by number", "a vgpu", "several vgpus", "vgpus without amounts are whole cards"],
)  # fmt: skip
def test_what_amounts_ask_of_cards(amounts, cards, share):
    assert asked_by(amounts).settled() == (cards, share)


USES = (CardUse(index=0, memory_mib=4096, core_percent=30), CardUse(index=3, whole=True))


@pytest.mark.parametrize("mode", [CardMode.VOLCANO, CardMode.STOCK])
def test_an_assignment_is_read_back_as_it_was_written(mode):
    slot = Slot(uid="u", pod="p", role="", node="n", cards=USES)
    annotations = assignment_annotations(slot, Node(name="n", card_mode=mode), 12.5)
    assert cards_from_annotations(annotations) == USES
    assert annotations.get(GPU_INDEX) == ("0,3" if mode is CardMode.VOLCANO else None)
    assert ("expected" in annotations[CARDS]) == (mode is CardMode.STOCK)


def test_volcanos_index_alone_takes_its_amounts_from_the_request():
    request = Request(share=Share(memory_mib=100))
    assert cards_from_annotations({GPU_INDEX: "2"}, request) == (CardUse(index=2, memory_mib=100),)
    assert cards_from_annotations({GPU_INDEX: "2,3"}) == (CardUse(index=2, whole=True), CardUse(index=3, whole=True))


@pytest.mark.parametrize("annotations", [{CARDS: "nonsense"}, {GPU_INDEX: "a,b"}])
def test_an_assignment_that_cannot_be_read_names_the_annotation(annotations):
    with pytest.raises(ValueError, match=next(iter(annotations))):
        cards_from_annotations(annotations)


def test_cards_that_the_kubelet_chooses_are_not_told_as_given():
    from muster.decide.assignment import cards_text
    from muster.decide.lifecycle.gangs import placed
    from muster.model.pods import Pod

    for expected, told in ((True, "2 cards of the kubelet's choice"), (False, "cards 0, 1")):
        cards = tuple(CardUse(index=index, whole=True) for index in (0, 1))
        annotations = {CARDS: cards_text(cards, expected=expected)}
        pod = Pod(namespace="ns", name="p", uid="u", node="n", cards=cards, annotations=annotations)
        assert placed(pod).message.endswith(told)
