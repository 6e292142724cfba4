"""Whole jobs, from a cold process to the last result: tidegate, Spark and Flink SQL."""
