"""The demonstration, with a few clicks: rows add up, and there is something to see."""

import numpy as np
import polars as pl
from rich.console import Console

from tidegate import demo


def test_the_demonstration_shows_a_merged_visit_and_accounts_for_every_row(
    spark, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(demo, "FILES", 4)
    monkeypatch.setattr(demo, "CLICKS_PER_FILE", 3_000)
    paths = demo.Paths(tmp_path)
    paths.clear()
    console = Console(width=120)
    written = demo.write_clicks(paths.input, np.random.default_rng(7))
    metrics = demo.run(spark, paths, console)
    assert demo.Report(paths, console, written, metrics).print()
    shown = capsys.readouterr().out
    assert "adds up" in shown
    assert "late clicks. The latest" in shown
    assert "invalid clicks" in shown

    story = demo.merged_visit(demo.rows_in(paths.visits))
    last = story.filter(pl.col("batch") == story["batch"].max())
    assert last["op"].to_list()[-1] == "+I"
    assert last["op"].to_list().count("-D") >= 2
    # Whatever was put out on the way is taken back, but for the whole.
    weight = story["op"].replace_strict({"+I": 1, "-D": -1}, return_dtype=pl.Int64)
    assert weight.sum() == 1
    assert demo.consolidate(story)["clicks"].to_list() == [last["clicks"][-1]]
