"""Export formats; `results.export.format.FORMATS` lists them."""
