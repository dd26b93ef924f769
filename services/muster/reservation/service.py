"""Says which card this pod was given, by an annotation on the pod itself, and holds it until it is told to stop.

The device plugin names the card in NVIDIA_VISIBLE_DEVICES. Pod and namespace come by the downward API.
"""

import asyncio
import os
from collections.abc import Mapping

from muster.decide.cards import VISIBLE_VARIABLE
from muster.decide.reservations import CARD_UUID
from muster.kube.config import connect
from muster.kube.decoding import PODS
from muster.kube.errors import KubeError
from muster.kube.writer import Writer
from muster.runtime.service import ServiceContext

POD, NAMESPACE = "MUSTER_RESERVATION_POD", "MUSTER_RESERVATION_NAMESPACE"
RETRY_SECONDS = 2.0


class ReservationError(RuntimeError):
    """The pod does not know what it is, or was given no single card; the message names the variable."""


def reported(environ: Mapping[str, str]) -> tuple[str, str, str]:
    """Namespace and name of this pod, and the UUID of its card.

    Raises:
        ReservationError: a variable is missing, or names no single card.
    """
    for name in (POD, NAMESPACE):
        if not environ.get(name):
            raise ReservationError(f"{name} is not set; the pod's manifest gives it by the downward API")
    card = environ.get(VISIBLE_VARIABLE, "")
    if not card or "," in card or card in {"all", "none", "void"}:
        raise ReservationError(
            f"{VISIBLE_VARIABLE}={card!r} names no single card; the device plugin should set its UUID"
        )
    return environ[NAMESPACE], environ[POD], card


async def main(context: ServiceContext) -> None:
    """Report the card, then wait to be stopped."""
    namespace, name, card = reported(os.environ)
    async with await connect(
        kubeconfig=context.config.kubeconfig, in_cluster=context.config.in_cluster, user_agent="muster-reservation"
    ) as kube:
        writer = Writer(kube)
        body = {"metadata": {"annotations": {CARD_UUID: card}}}
        while True:
            try:
                await writer.merge_patch(PODS, namespace, name, body)
                break
            except KubeError as error:
                context.log.warning("the card cannot be reported yet", why=error.message)
                await asyncio.sleep(RETRY_SECONDS)
        context.log.info("holds a card", card=card)
        context.ready.set("reported", True)
        await context.stopping.wait()
