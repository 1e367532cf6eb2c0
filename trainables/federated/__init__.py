"""Federated training: clients that keep their data, and a server that averages what they learn."""
