"""The pages for people, and the same content as JSON for programs. Nothing here writes to the database."""
