"""Which prepared queries are kept."""

from __future__ import annotations

from penstock.pipeline.spark.prepared_plan import PreparedQueries, PreparedQuery


class Query(PreparedQuery):
    """One without a JVM."""

    def __init__(self) -> None:
        super().__init__(None, ())

    forgotten = False

    def forget(self) -> None:
        object.__setattr__(self, "forgotten", True)


def test_a_query_is_for_one_at_a_time() -> None:
    queries, query = PreparedQueries(), Query()
    assert queries.take("plan") is None

    queries.put("plan", query)

    assert queries.take("other") is None
    assert queries.take("plan") is query
    assert queries.take("plan") is None


def test_those_that_were_not_used_for_longest_are_forgotten() -> None:
    queries, made = PreparedQueries(most=2), [Query() for _ in range(3)]
    queries.put("a", made[0])
    queries.put("b", made[1])
    again = queries.take("a")
    assert again is made[0]
    queries.put("a", again)

    queries.put("c", made[2])

    assert [one.forgotten for one in made] == [False, True, False]
    assert len(queries) == 2
    assert queries.take("b") is None
    assert queries.take("a") is made[0]
