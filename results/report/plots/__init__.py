"""The plots of the reports, as plotly figures."""
