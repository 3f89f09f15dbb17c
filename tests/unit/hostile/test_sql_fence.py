"""What the expressions of Sql may not be: each kind of attack, in the spellings that Spark would take."""

import contextlib
import random
import time

import pytest
from tests.shares import QUICK

from penstock.errors import ConfigException
from penstock.transforms.sql.checks import MAX_CHARACTERS, read
from penstock.transforms.sql.functions import AGGREGATES, ALLOWED, REFUSED
from penstock.transforms.sql.text import SqlRefused, meaningful, pieces
from penstock.transforms.sql.transform import Sql

LET_THROUGH = [
    "a.b.c:d",
    "v:['a b'].c + u:[0].x::int",
    "`a b`.`c``d`, a as `b c`, a b",
    "a + b - c * d / e % f | g & h ^ ~i, a div b, a << 2, a >> 2, a >>> 2, a || b",
    "not a and !b or c <=> d and e <> f and g != h and i == j",
    "a is null or b is not true or c is distinct from d or e is not distinct from f or g is not unknown",
    "a in (1, -2, 'x') and b not in (c) and d between 1 and 2 and e not between 1 and 2",
    "a like 'x%' escape '!' and b not ilike 'y' and c rlike d and e regexp f and g like any ('x', 'y')",
    "case when a then b when c then d else e end, case a when 1 then 2 end",
    "cast(a as array<struct<x: int not null comment 'c', y map<string, array<int>>>>)",
    "try_cast(a as decimal(10, 2)), a::interval day to second, a::timestamp without time zone, a::string collate X",
    "interval 1 day + interval '2' hours 3 minutes - interval -3 days, interval '1-2' year to month",
    "timestamp '2020-01-01', timestamp_ntz'2020-01-01', date '2020-01-01', x'1F'",
    "1L + 2S + 1.5BD + 1e3 + 1.5e-3D + .5 + 1. + 2fa",
    "'a' 'b', r'\\d', \"text\", 'it''s', 'it\\'s (select 1)'",
    "current_date, current_timestamp, current_date(), localtime",
    "struct(a as x, b y, c), struct(*), *, * except (a, b), record.*",
    "transform(xs, x -> x.y + 1), aggregate(xs, 0, (sum, x) -> sum + x.n, total -> total * rate)",
    "extract(year from a), substring(a from 2 for 3), trim(both 'x' from a), overlay(a placing 'x' from 2 for 3)",
    "trim('x' from a), position('a' in b), timestampadd(hour, 1, a), datediff(day, a, b), mask(a, lowerChar => 'q')",
    "explode(items) as item, posexplode(ys) as (p, c), stack(2, a, b, c, d)",
    "upper(a) -- reflect(1)\n, lower(b) /* (select /* 1 */ 2) */",
    "values[0], (values), from.a, (table.b), end, case, date, interval, any, count, user, exists, map.a, a.select",
    "`select`, `current_user`, `reflect`",
    "repeat(a, 3), sequence(1, 100), lpad(a, 1000000), repeat(a, n), array_repeat(0, size(xs))",
    "from_json(a, 'b int', map('mode', 'FAILFAST')), from_xml(a, 'b int', map('rowTag', 'x', 'mode', 'FAILFAST'))",
]
CALLS_OF_CODE = [
    "reflect('java.lang.System', 'exit', 0)",
    "REFLECT ('java.lang.System', 'getenv', 'X')",
    "`reflect`('a', 'b')",
    "`Reflect` /* here */ ('a', 'b')",
    "java_method\n('a', 'b')",
    "java_method -- note\n('a', 'b')",
    "try_reflect('a', 'b')",
    "builtin.reflect('a', 'b')",
    "system.builtin.reflect('a', 'b')",
    "system.builtin.`upper`(a)",
    "transform(xs, x -> transform(ys, y -> reflect('a', x, y)))",
    "case when a then 1 else try_reflect('a', 'b') end",
    "xs[reflect('a', 'b')]",
    "named_struct('a', reflect('a', 'b'))",
    "mask(a, lowerChar => reflect('a', 'b'))",
    "cast(reflect('a', 'b') as int)",
    "a in (1, reflect('a', 'b'))",
    "a like any ('x', reflect('a', 'b'))",
    "(x, y) -> reflect('a', x)",
    "identifier('reflect')('a', 'b')",
    "IDENTIFIER('re' || 'flect')('a', 'b')",
    "my_function(a)",
    "spark_catalog.default.my_function(a)",
]
QUERIES = [
    "(select 1)",
    "(SeLeCt first(value) from text.`/etc/shadow`)",
    "((select -1))",
    "(/* a */select/* b */value from csv.`/etc/secrets`)",
    "a in (select value from text.`/etc/shadow`)",
    "exists(select * from t)",
    "exists(from t)",
    "exists (from escape)",
    "(from t)",
    "(from in (1, 2))",
    "(from like x)",
    "(from t |> select a)",
    "(table t)",
    "(table text.`/etc/shadow`)",
    "(values (1))",
    "(values 1)",
    "(values -1)",
    "(values .5)",
    "(with x as (select 1) select * from x)",
    "(map a using 'cat')",
    "(reduce a using 'cat')",
    "(select transform(a) using 'cat' from t)",
    "(\u017felect 1)",
    "(select\u00a01)",
    "a from text.`/etc/shadow`",
    "a, b from t",
    "a union select b",
    "a; drop table t",
    "execute immediate 'select 1'",
    "set x = 1",
    "a lateral view explode(b) t",
    "table(t)",
    "array(select 1)",
]
DISCLOSURES = [
    "'${env:HOME}'",
    "a -- ${env:HOME}",
    "${spark:spark.app.id}",
    "'${spark.app.id}'",
    "/* ${system:user.name} */ a",
    "current_user()",
    "user()",
    "session_user( )",
    "current_catalog()",
    "current_database()",
    "current_schema()",
    "current_path()",
    "version()",
    "input_file_name()",
    "input_file_block_start()",
    "from_avro(a, 'x')",
    "from_protobuf(a, 'M', '/etc/shadow')",
    "from_xml(a, 'b int', map('rowValidationXSDPath', '/etc/shadow'))",
    "from_xml(a, 'b int', map('row\\u0056alidationXSDPath', '/etc/shadow'))",
    "from_xml(a, 'b int', map('rowValidation' 'XSDPath', '/etc/shadow'))",
    "from_xml(a, 'b int', map(concat('rowValidation', 'XSDPath'), '/etc/shadow'))",
    "from_xml(a, 'b int', map_from_arrays(array('rowValidationXSDPath'), array('/etc/shadow')))",
    "from_xml(a, 'b int', options => map('rowValidationXSDPath', '/etc/shadow'))",
    "schema_of_xml(a, map('rowValidationXSDPath', '/etc/shadow'))",
]
OTHER_RECORDS = [
    "sum(a) over (partition by b)",
    "row_number() over (order by a)",
    "lag(a)",
    "window(a, '1 day')",
    "a qualify b",
    "count(distinct a)",
    "sum(a) filter (where b)",
    "measure(a)",
    "range(10)",
]
PARAMETERS = [":a", "?", "? + 1", "not :a", "a + :b", "$a", "@a", "$$a$$", "{a}", "#a", "a |> b"]
COMMENTS = ["a /*", "a /* /* */", "/*+ broadcast(t) */ a", "a */ b /* c"]
TOO_LARGE = [
    "size(sequence(1, 2000000000, 1))",
    "sequence(-2000000000, 1)",
    "repeat('a', 2000000000)",
    "repeat(name, 2000000000)",
    "repeat(repeat('a', 1000000), 1000000)",
    "array_repeat(array_repeat(1, 1000000), 1000000)",
    "repeat('a', 1000000 * 1000000)",
    "repeat('a', cast('2000000000' as int))",
    "space(2000000000)",
    "lpad(a, 2000000000, 'x')",
    "rpad('a', 2000000000L)",
    "format_string('%2000000000d', a)",
    "printf('%-2000000000s', 'a')",
    "from_json(a, repeat('b int', 100000000))",
    "round(a, length(repeat('a', n_of_no_record())))",
    "stack(length(array_join(array_repeat('aaaa', 1000000), 'bbbb')), a)",
    "replace(replace('aaaaaaaaaa', 'a', 'aaaaaaaaaa'), 'a', 'aaaaaaaaaa')",
    "hex(hex(hex(hex(hex(hex('a'))))))",
    "from_json(a, regexp_replace('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', '(a+)+b', 'x'))",
    "if('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' rlike '(a+)+b', 'a int', 'b int')",
    "sequence(timestamp '0001-01-01', timestamp '9999-01-01', interval 1 second)",
    "(" * 65 + "a" + ")" * 65,
    "upper(" * 65 + "a" + ")" * 65,
    "case when a then " * 65 + "b" + " end" * 65,
    "a::" + "array<" * 65 + "int" + ">" * 65,
    "+".join(["a"] * 6000),
    "'" + "a" * MAX_CHARACTERS + "'",
]


@pytest.mark.parametrize("text", LET_THROUGH)
def test_expressions_over_one_record_are_let_through(text):
    read(text)


@pytest.mark.parametrize(
    "text", [*CALLS_OF_CODE, *QUERIES, *DISCLOSURES, *OTHER_RECORDS, *PARAMETERS, *COMMENTS, *TOO_LARGE]
)
def test_what_leads_out_of_one_record_or_grows_without_bound_is_refused(text):
    with pytest.raises(SqlRefused):
        read(text)
    with pytest.raises(SqlRefused):
        read(f"id, upper(name) as n, {text} as x")
    with pytest.raises(SqlRefused):
        read(f"transform(xs, x -> coalesce({text}, x))")


@pytest.mark.parametrize("name", sorted({*REFUSED, "a_function_that_comes_with_spark_9"}))
@pytest.mark.parametrize("shape", ["{}(a)", "`{}` (a)", "upper({}(a))", "xs[{}()]", "{}(a) = 1 and b"])
def test_functions_that_are_not_in_the_list_are_refused_wherever_they_stand(name, shape):
    for spelling in (name, name.upper(), name.title()):
        with pytest.raises(SqlRefused):
            read(shape.format(spelling))


def test_the_lists_of_functions_have_none_twice():
    assert ALLOWED.isdisjoint(REFUSED)
    assert REFUSED.keys() >= AGGREGATES


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"select": "id, reflect('java.lang.System', 'exit', 0) as x"},
            ("configuration select", "character 5", "the function reflect cannot be used", "calls code by name"),
        ),
        (
            {"where": "id = (select first(value) from text.`/etc/shadow`)"},
            ("configuration where", "character 7", "an expression sees one record", "backticks"),
        ),
        ({"select": "'${env:HOME}' as home"}, ("configuration select", "character 2", "'$' || '{...'")),
        (
            {"select": "repeat(a, 2000000000) as x"},
            ("character 1", "repeat would make 2000000000", "at most 1000000"),
        ),
    ],
)
def test_a_refusal_says_where_what_and_why_without_a_session(settings, words):
    (message,) = [text for one in Sql().config().validate(settings) for text in one.error_messages]
    assert all(word in message for word in words)
    with pytest.raises(ConfigException, match="no expression over the fields of one record"):
        Sql().configure(settings)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a /* b /* c */ d */ e", ["a", "e"]),
        ("a -- b \\\n c\n d", ["a", "d"]),
        ("a -- b\rc", ["a", "c"]),
        ("'a''b' r'\\' `c``d`", ["'a'", "'b'", "r'\\'", "`c``d`"]),
    ],
)
def test_comments_and_texts_end_where_they_end_for_spark(text, kept):
    assert [one.text for one in meaningful(text)] == kept
    assert "".join(one.text for one in pieces(text)) == text


@pytest.mark.parametrize(
    "one", ["(a+", "upper(", "a,", "a.b", "xs[", "/*", "a in (1) ", "case ", "'a' ", "not ", "::int"]
)
def test_reading_takes_no_longer_than_its_text_is_long(one):
    def seconds(times: int) -> float:
        began = time.thread_time()
        with contextlib.suppress(SqlRefused):
            read.__wrapped__(one * times)
        return time.thread_time() - began

    seconds(10)
    assert seconds(MAX_CHARACTERS // len(one)) < 2


WORDS = """
select from table values with map reduce transform where group by as and or not in is like any between case when then
else end distinct a b x exists array struct interval day 1 'x' `q` ( ( ) ) [ ] , . : :: * + - = => -> | |> ; ? $ union
lateral over identifier system upper user null date extract substring trim cast using /* */ -- ${x}
"""


def test_nothing_that_is_read_fails_in_another_way():
    chance = random.Random(32)
    passed = 0
    for _ in range(5_000 if QUICK else 20_000):
        text = " ".join(chance.choices(WORDS.split(), k=chance.randint(1, 12)))
        with contextlib.suppress(SqlRefused):
            read(text)
            passed += 1
    assert passed > (25 if QUICK else 100)
