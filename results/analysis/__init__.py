"""Analysis of records: leaderboard, winner, confirmation, comparison of sweeps."""
