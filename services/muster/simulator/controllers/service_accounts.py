"""The ServiceAccount `default` of every namespace."""

from typing import Any

from muster.simulator.errors import ApiError
from muster.simulator.store import Store

Object = dict[str, Any]
NAME = "default"


class ServiceAccounts:
    """Makes the account with the namespace, and again when somebody deletes it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        store.subscribe("namespaces", self._on_namespace)
        store.subscribe("serviceaccounts", self._on_account)
        for namespace in store.list("namespaces"):
            self._ensure(namespace["metadata"]["name"])

    def _on_namespace(self, event: str, namespace: Object, _old: Object | None) -> None:
        if event == "ADDED":
            self._ensure(namespace["metadata"]["name"])

    def _on_account(self, event: str, account: Object, _old: Object | None) -> None:
        if event == "DELETED" and account["metadata"]["name"] == NAME:
            self._ensure(account["metadata"]["namespace"])

    def _ensure(self, namespace: str) -> None:
        if self._store.find("serviceaccounts", namespace, NAME) is not None:
            return
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": namespace}}
        try:
            self._store.create("serviceaccounts", account, namespace=namespace)
        except ApiError as error:
            # A namespace that is going away or gone needs none.
            if error.code not in {403, 404}:
                raise
