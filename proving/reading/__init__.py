"""Reading: values and blocks as requests name them, from rows, from memory or from chains."""
