#!/bin/sh
# The Python of local sessions. Spark lets its Python processes import pyspark from a zip file, where nothing
# is compiled: 0.8 s for each of them. The same package is installed beside tidegate, and takes 0.2 s.
# Of the process that is asked for the states of an operator, Spark prints what it says: nothing but its steps.
case "$*" in *pyspark.sql.streaming.transform_with_state_driver_worker*) exec >/dev/null ;; esac
PYTHONPATH=${PYTHONPATH#*/pyspark.zip:} exec "$TIDEGATE_PYTHON" "$@"
