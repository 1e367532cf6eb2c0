"""The network in plain torch. An export contains this file, so it imports nothing of ours."""

from torch import nn

PIXELS, CLASSES = 64, 10


def network(
    hidden_units: int, num_layers: int, dropout: float = 0.0, batch_norm: bool = False
) -> nn.Sequential:
    """Pixels [images, 64] in 0..1 to logits [images, 10]."""
    layers: list[nn.Module] = []
    width = PIXELS
    for _ in range(num_layers):
        layers.append(nn.Linear(width, hidden_units))
        if batch_norm:
            layers.append(nn.BatchNorm1d(hidden_units))
        layers += [nn.ReLU(), nn.Dropout(dropout)]
        width = hidden_units
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))
