"""Messages of members, as workers of Java Kafka Connect have sent them, and as nobody should."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.generated import examples

from penstock.herder.cluster.connect_protocol import (
    Assignment,
    AssignmentError,
    BadProtocolException,
    MemberMetadata,
    Subprotocol,
    decode_assignment,
    decode_metadata,
    encode_assignment,
    encode_metadata,
    offered,
)
from penstock.model import ConnectorTaskId
from penstock.model.states import NOTHING, Units

URL = "http://127.0.0.1:28411/"
FIRST = bytes.fromhex("00020017687474703a2f2f3132372e302e302e313a32383431312f000000000000000cffffffff")

units = st.builds(
    Units.of,
    st.lists(st.text(max_size=5)),
    st.lists(st.builds(ConnectorTaskId, st.text(max_size=5), st.integers(0, 9))),
)
assignments = st.builds(
    Assignment, st.text(max_size=9), st.just(URL), st.integers(-1, 2**40), units, units, st.integers(0, 2**31 - 1)
)


def test_a_member_without_work_joins_with_these_bytes():
    assert encode_metadata(MemberMetadata(URL, 12), 2) == FIRST
    assert decode_metadata(FIRST) == MemberMetadata(URL, 12)


def test_a_leader_that_is_behind_says_so():
    told = decode_assignment(bytes.fromhex("0002000100026c3100017500000000000f4240" + "00000000" * 3))
    assert told == Assignment("l1", "u", 1_000_000, error=AssignmentError.CONFIG_MISMATCH)


@pytest.mark.parametrize("tail", ["", "00000000", "00000000ffffffff", "ffffffffffffffff00000000"])
def test_fields_that_are_missing_or_null_at_the_end_have_their_defaults(tail):
    assert decode_assignment(bytes.fromhex("0001000000016c000175000000000000000c" + tail)) == Assignment("l", "u", 12)


def test_the_sub_protocols_that_a_setting_offers():
    assert offered("sessioned") == tuple(reversed(Subprotocol))
    assert offered("compatible") == (Subprotocol.COMPATIBLE, Subprotocol.EAGER)
    assert offered("eager") == (Subprotocol.EAGER,)
    assert [one.version for one in offered("sessioned")] == [2, 2, 1, 0]


@examples(40)
@given(assignments, st.sampled_from([1, 2]))
def test_what_is_written_is_read(assignment, version):
    read = decode_assignment(encode_assignment(assignment, version))
    assert set(read.assigned) == set(assignment.assigned)
    assert set(read.revoked) == set(assignment.revoked)
    assert (read.leader, read.delay_ms, read.config_offset) == (
        assignment.leader,
        assignment.delay_ms,
        assignment.config_offset,
    )
    metadata = MemberMetadata(URL, 5, read)
    assert decode_metadata(encode_metadata(metadata, version)) == metadata
    assert decode_metadata(encode_metadata(metadata, 0)) == MemberMetadata(URL, 5)


@examples(40)
@given(st.binary(max_size=60))
def test_bytes_of_other_protocols_are_refused_in_words(data):
    for decode in (decode_metadata, decode_assignment):
        with contextlib.suppress(BadProtocolException):
            decode(data)


def test_the_refusal_says_what_to_look_for():
    with pytest.raises(BadProtocolException, match=r"end in the middle of a value, at byte 4.*group\.id"):
        decode_metadata(bytes.fromhex("00010017"))


@examples(40)
@given(assignments)
def test_cut_bytes_are_never_taken_for_a_longer_message(assignment):
    whole = encode_assignment(assignment, 2)
    for end in range(len(whole)):
        try:
            assert decode_assignment(whole[:end]).delay_ms == 0
        except BadProtocolException:
            pass


def test_nothing_is_nothing():
    assert not NOTHING
    assert len(NOTHING) == 0
