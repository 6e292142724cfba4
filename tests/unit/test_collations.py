"""Collations: carried along as they are, and refused wherever text is compared."""

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tests.support.plans import TIMESTAMP, dedupe_plan, hopping, plan_of, sliding
from tidegate.errors import PlanError, TypeMismatch
from tidegate.kernels import aggregates as a
from tidegate.plan.schema import collated, collation_of
from tidegate.plan.sources import Source, Union
from tidegate.plan.time import Micros
from tidegate.spark.schema import arrow_schema, spark_schema

LCASE = StringType("UTF8_LCASE")
NAME = collated(pa.field("name", pa.string()), "UTF8_LCASE")
SCHEMA = pa.schema([("ts", TIMESTAMP), ("user", pa.string()), NAME])


@pytest.mark.parametrize(
    "kind",
    [
        LCASE,
        ArrayType(LCASE),
        MapType(LCASE, IntegerType()),
        MapType(StringType(), ArrayType(LCASE)),
        StructType([StructField("a", IntegerType()), StructField("b", LCASE)]),
    ],
    ids=lambda kind: kind.simpleString(),
)
def test_a_collation_is_in_the_schema_of_plans_and_comes_back(kind):
    given = StructType([StructField("ts", TimestampType()), StructField("v", kind)])
    schema = arrow_schema(given)
    assert collation_of(schema.field("v")) == "UTF8_LCASE"
    assert collation_of(schema.field("ts")) is None
    assert spark_schema(schema) == given


def test_plain_text_has_none():
    assert collation_of(arrow_schema(StructType([StructField("v", StringType())])).field("v")) is None


TOLD = (
    "'name' has the collation UTF8_LCASE, and values are compared byte by byte here; use "
    "df.withColumn('name', F.collate('name', 'UTF8_BINARY')), with F.lower('name') inside if upper and "
    "lower case are the same"
)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: plan_of(hopping(10), keys=("name",), schema=SCHEMA), "key column "),
        (lambda: dedupe_plan(10, on=("name",), feed=Source(SCHEMA, "ts", Micros(0))), "key column "),
        *(
            (lambda one=one: plan_of(hopping(10), (("x", one),), schema=SCHEMA), f"x={one}: column ")
            for one in (
                a.Min("name"),
                a.Max("name"),
                a.CountDistinct("name"),
                a.ApproxCountDistinct("name"),
            )
        ),
        (
            lambda: plan_of(sliding(10, None, "name = 'ann'"), schema=SCHEMA),
            "when=\"name = 'ann'\": column ",
        ),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_text_with_a_collation_is_not_compared(make, what):
    with pytest.raises(TypeMismatch) as refused:
        make()
    assert str(refused.value) == what + TOLD


def test_results_that_hold_its_values_have_the_collation():
    shown = (("n", a.Count("name")), ("one", a.First("name")), ("all", a.Collect("name")))
    schema = plan_of(hopping(10), shown, schema=SCHEMA).schema
    found = {name: collation_of(schema.field(name)) for name in ("user", "n", "one", "all")}
    assert found == {"user": None, "n": None, "one": "UTF8_LCASE", "all": "UTF8_LCASE"}


def test_a_union_is_of_one_collation():
    plain = pa.schema([("ts", TIMESTAMP), ("user", pa.string()), ("name", pa.string())])
    with pytest.raises(
        PlanError, match=r"name: string collate UTF8_LCASE\) here, .*name: string\) there"
    ):
        Union((Source(SCHEMA, "ts", Micros(0)), Source(plain, "ts", Micros(0))))
