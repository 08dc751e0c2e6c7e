"""What experiments come to: shares, means, costs, and paired comparisons. Functions of trials, and nothing else."""
