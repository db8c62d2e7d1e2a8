"""The command line: one file per command; app.py holds their table."""
