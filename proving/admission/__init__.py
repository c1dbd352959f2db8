"""Whether a batch can be proven, before anything is spent on it: `admit` decides, by what `feasibility` computes."""
