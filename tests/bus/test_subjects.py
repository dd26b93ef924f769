import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.bus import subjects
from muster.bus.subjects import SubjectError, consumer_name, escape_token, split_subject, unescape_token


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_any_text_is_one_legal_token_and_comes_back(text: str) -> None:
    token = escape_token(text)
    assert token
    assert token.isascii()
    assert not set(token) & set(" .*>\t\r\n\0$")
    assert unescape_token(token) == text


@given(st.text(), st.text())
def test_different_texts_get_different_tokens_and_consumer_names(one: str, other: str) -> None:
    assert (escape_token(one) == escape_token(other)) == (one == other)
    assert (consumer_name("jobs", one) == consumer_name("jobs", other)) == (one == other)


@given(st.text())
def test_consumer_names_are_legal_and_short_enough_for_a_file_name(text: str) -> None:
    name = consumer_name("jobs", text)
    assert len(name.encode()) <= subjects.LONGEST_NAME
    assert not set(name) & set(" .*>/\\\t\r\n\0")


@pytest.mark.parametrize(
    ("text", "token"),
    [
        pytest.param("team-a/llm-7f3c", "team-a/llm-7f3c", id="an ordinary key stays readable"),
        pytest.param("node-1.example", "node-1=2Eexample", id="a dot is escaped"),
        pytest.param("", "=", id="the empty text has a token too"),
        pytest.param("a=b", "a=3Db", id="the escape character is escaped"),
        pytest.param("*", "=2A", id="a wildcard is no wildcard"),
        pytest.param("ü", "=C3=BC", id="bytes of UTF-8 are escaped"),
    ],
)
def test_tokens(text: str, token: str) -> None:
    assert escape_token(text) == token


@pytest.mark.parametrize("token", ["a.b", "=2", "=zz", "=2e", "a b", "", "=61", "=FF"])
def test_what_was_not_made_by_escaping_is_refused(token: str) -> None:
    with pytest.raises(SubjectError):
        unescape_token(token)


@pytest.mark.parametrize(
    ("subject", "tokens"),
    [
        (subjects.state_subject("pod", "ns/a.b"), ("state", "pod", "ns/a.b")),
        (subjects.ledger_subject("bind", "ns/g"), ("ledger", "bind", "ns/g")),
        (subjects.jobs_submit("team a"), ("jobs", "submit", "team a")),
        (subjects.jobs_cancel("t"), ("jobs", "cancel", "t")),
        (subjects.jobs_progress("t", "ns/j"), ("jobs", "progress", "t", "ns/j")),
        (subjects.status_subject("t", "job.1"), ("status", "t", "job.1")),
        (subjects.decision_subject("pending", "ns/g"), ("decision", "pending", "ns/g")),
        (subjects.usage_subject("q.1"), ("usage", "q.1")),
        (subjects.api_subject("t", "explain"), ("api", "t", "explain")),
        (subjects.propose_subject("evict"), ("propose", "evict")),
        (subjects.dlq_subject("muster.jobs.submit.t=2E1"), ("dlq", "jobs", "submit", "t.1")),
    ],
)
def test_a_subject_tells_what_it_was_made_from(subject: str, tokens: tuple[str, ...]) -> None:
    assert split_subject(subject) == tokens


def test_a_foreign_subject_is_refused() -> None:
    with pytest.raises(SubjectError, match="does not start with"):
        split_subject("$JS.API.INFO")
