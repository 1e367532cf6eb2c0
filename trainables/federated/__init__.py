"""Federated training: clients train on their own data, a server averages their weights."""
