"""The public names of aggregates, a line each: `tg.sum`, and `sum: price` in pipeline files.

Messages list aggregates in this order.
"""

from tidegate.kernels import aggregates as _a

count = _a.Count
sum = _a.Sum
min = _a.Min
max = _a.Max
mean = _a.Mean
var = _a.Var
stddev = _a.Stddev
first = _a.First
last = _a.Last
count_distinct = _a.CountDistinct
collect = _a.Collect
approx_count_distinct = _a.ApproxCountDistinct
quantile = _a.Quantile
median = _a.Median
