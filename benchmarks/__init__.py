"""The benchmark: tidegate beside Spark's own operators, on the same data in the same session set-up."""
