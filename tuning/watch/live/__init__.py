"""The live page of sweeps: `tune ui --live`."""
