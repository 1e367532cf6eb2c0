"""Export a model to the formats of other runtimes, and verify the copy with those runtimes."""

from results.export.exportable import Exportable, ModelSource, TokenSample
from results.export.folder import ModelCard, export_model
from results.export.format import FORMATS, Format, Runtime, make_format, quantized
from results.export.verify import Verification, perplexity_line, verify_export

__all__ = [
    "FORMATS",
    "Exportable",
    "Format",
    "ModelCard",
    "ModelSource",
    "Runtime",
    "TokenSample",
    "Verification",
    "export_model",
    "make_format",
    "perplexity_line",
    "quantized",
    "verify_export",
]
