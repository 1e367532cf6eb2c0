"""Commands on the results of a sweep: winner, averages, exports, comparisons."""
