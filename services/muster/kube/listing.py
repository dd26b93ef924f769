"""Paged LISTs: one consistent snapshot, however many requests it takes.

All pages of a list are of the first page's resourceVersion. When the continue token expires in between (410), the
pages so far are of no use and the list starts again; the third attempt asks for everything in one answer.
"""

from typing import Any

from muster.kube.decoding import KindInfo, Page, decode_page
from muster.kube.errors import Gone, UnexpectedReply
from muster.kube.transport import Transport

PAGE_SIZE = 500
_PAGED_ATTEMPTS = 2
_MAXIMUM_PAGES = 100_000


async def list_all(
    transport: Transport,
    info: KindInfo[Any],
    *,
    namespace: str | None = None,
    label_selector: str | None = None,
    field_selector: str | None = None,
    page_size: int = PAGE_SIZE,
    timeout_seconds: float = 60.0,
) -> Page:
    """Every object of a kind that matches, as one page. `timeout_seconds` limits each request.

    No resourceVersion is asked for, so the answer is never older than the request. Raises KubeError.
    """
    selectors = selection(label_selector=label_selector, field_selector=field_selector)
    path = info.path(namespace)
    for attempt in range(_PAGED_ATTEMPTS + 1):
        limit = [("limit", str(page_size))] if attempt < _PAGED_ATTEMPTS else []
        try:
            return await _pages(transport, info, path, query=[*selectors, *limit], timeout_seconds=timeout_seconds)
        except Gone:
            if attempt == _PAGED_ATTEMPTS:
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


async def _pages(
    transport: Transport, info: KindInfo[Any], path: str, *, query: list[tuple[str, str]], timeout_seconds: float
) -> Page:
    items: list[Any] = []
    malformed: list[Any] = []
    resource_version = ""
    continuation: list[tuple[str, str]] = []
    for _ in range(_MAXIMUM_PAGES):
        content = await transport.request("GET", path, query=[*query, *continuation], timeout_seconds=timeout_seconds)
        page = decode_page(info, content)
        items.extend(page.items)
        malformed.extend(page.malformed)
        resource_version = resource_version or page.resource_version
        if not page.continue_token:
            return Page(items=items, resource_version=resource_version, continue_token="", malformed=tuple(malformed))
        continuation = [("continue", page.continue_token)]
    raise UnexpectedReply(f"list of {info.resource}: more than {_MAXIMUM_PAGES} pages")


def selection(*, label_selector: str | None, field_selector: str | None) -> list[tuple[str, str]]:
    """The query parameters of selectors; none for None or ''."""
    given = (("labelSelector", label_selector), ("fieldSelector", field_selector))
    return [(name, value) for name, value in given if value]
