"""Commands on results: the winner, averages, exports, comparisons."""
