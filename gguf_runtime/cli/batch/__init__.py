"""`batch`: many prompts from a file, answered so that nothing is lost."""
