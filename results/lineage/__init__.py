"""What a model was made from: the data, and the models with which its training began."""

from results.lineage.ancestors import (
    Ancestor,
    DataSet,
    TrainedModel,
    ancestors,
    data_fingerprint,
    data_set,
)
from results.lineage.sources import Source, source_of, sources_in, title_of

__all__ = [
    "Ancestor",
    "DataSet",
    "Source",
    "TrainedModel",
    "ancestors",
    "data_fingerprint",
    "data_set",
    "source_of",
    "sources_in",
    "title_of",
]
