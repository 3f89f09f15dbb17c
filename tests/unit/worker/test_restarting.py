"""What follows when a task has ended by an error."""

import confluent_kafka as ck
import pytest

from penstock.errors import ConnectException, FencedInstanceIdException, KafkaException, SparkSessionLostException
from penstock.kafka.consumer.offsets import exception_of
from penstock.model import State
from penstock.worker.task.engine import TransactionLostException, state_after


@pytest.mark.parametrize(
    ("error", "alone", "in_group"),
    [
        (ConnectException("broken"), State.FAILED, State.FAILED),
        (KafkaException("no right"), State.FAILED, State.FAILED),
        (SparkSessionLostException("lost"), State.RESTARTING, State.RESTARTING),
        (TransactionLostException("lost"), State.RESTARTING, State.RESTARTING),
        # A worker that was frozen joins with the id of the task when it wakes, and has to give the task up.
        (FencedInstanceIdException("fenced"), State.FAILED, State.RESTARTING),
    ],
)
def test_a_task_that_is_not_to_blame_starts_again(error, alone, in_group):
    assert (state_after(error), state_after(error, shares_id=True)) == (alone, in_group)


def test_a_consumer_whose_static_id_another_one_has_says_so():
    inner = ck.KafkaError(ck.KafkaError.FENCED_INSTANCE_ID).str()
    fatal = ck.KafkaError(ck.KafkaError._FATAL, f"Fatal error: {inner}", fatal=True)
    found = exception_of("orders task 1", fatal)
    assert isinstance(found, FencedInstanceIdException)
    assert "Another consumer is in the group with the same group.instance.id" in str(found)
