"""A small network on scikit-learn's handwritten digits: real data, a second per trial."""
