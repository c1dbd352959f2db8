"""What answers to a submission say, and what it takes."""

# Of these, two begin and end the one transaction; a second one would sync the disk again.
STATEMENTS_OF_A_SUBMISSION = 17
# That of the user, where rows are locked.
LOCKS = 1


def faults(response) -> dict[str, tuple[str, str]]:
    """(code, message) by path."""
    assert response.status_code == 400, response.content
    return {fault["path"]: (fault["code"], fault["message"]) for fault in response.json()["details"]}
