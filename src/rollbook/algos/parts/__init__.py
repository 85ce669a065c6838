"""The maths that has one right answer, shared by the algorithms."""
