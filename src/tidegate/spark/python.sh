#!/bin/sh
# The Python of local sessions. Spark lets its Python processes import pyspark from a zip file, where nothing
# is compiled: 0.8 s for each of them. The same package is installed beside tidegate, and takes 0.2 s.
PYTHONPATH=${PYTHONPATH#*/pyspark.zip:} exec "$TIDEGATE_PYTHON" "$@"
