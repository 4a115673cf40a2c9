//! Holds no code: its manifest unites the features that the programs of this workspace ask of
//! their libraries.

#![forbid(unsafe_code)]
