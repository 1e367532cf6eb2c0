"""Files for other programs: rules, dashboards, manifests."""

from __future__ import annotations

import string


class DeployTemplate(string.Template):
    """A text with `@{placeholders}`: manifests use `$(NAME)`, Prometheus `$` and `{{ }}`."""

    delimiter = "@"
