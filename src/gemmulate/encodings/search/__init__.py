"""Search: encodings found by exhaustive or bounded enumeration, with named reasons for what fails."""
