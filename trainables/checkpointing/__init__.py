"""How a trial's state is copied, written, uploaded and read back."""
