"""Pipelines as text: files of YAML or SQL, checked without Spark, then run."""
