"""The form that people submit a batch with, instead of a program."""
