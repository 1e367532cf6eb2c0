"""Commands that show the folders in the storage, while sweeps run and afterwards."""
