//! Tests of the whole way from files and flags to a checked configuration.
