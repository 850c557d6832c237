"""Attention in C++, built on this machine where there is a compiler."""
