"""A query in a process of its own, so that a test can kill it: `crashing_query.py FOLDER`."""

import sys

import tidegate as tg


def main(folder: str) -> None:
    spark = tg.local_spark(cores=2, app="crashing")
    reader = spark.readStream.schema("ts timestamp, user string, price double")
    clicks = reader.option("maxFilesPerTrigger", 1).parquet(f"{folder}/clicks")
    keyed = tg.events(clicks, time="ts", tolerance="4 s").key_by("user")
    result = keyed.window(tg.hopping("20 s", "10 s")).agg(n=tg.count(), spend=tg.sum("price"))
    sink = tg.sinks.parquet(f"{folder}/out")
    result.start(
        checkpoint=f"{folder}/ckpt", main=sink, trigger={"availableNow": True}
    ).await_termination()


if __name__ == "__main__":
    main(sys.argv[1])
