"""Plans: which Scheme, over which Encoding and Formats, on which Engine, why, and how exact."""
