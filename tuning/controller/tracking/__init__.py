"""The sweep's connection to its tracker."""
