"""One file for each class of what other people's reports, files and machines break."""
