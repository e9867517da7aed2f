//! Every CEL rule of the three kinds, both ways.
