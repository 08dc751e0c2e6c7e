"""Verified programs as packages that can be shipped: an operator with a guard, its reference, its evidence."""
