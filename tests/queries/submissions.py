"""Faults in answers to submissions, and the number of statements of a submission."""

# Two of these statements begin and end the transaction. A second transaction would sync the disk once more.
STATEMENTS_OF_A_SUBMISSION = 14
# Locking the user is another statement, on databases with row locks.
LOCKS = 1


def faults(response) -> dict[str, tuple[str, str]]:
    """Return each fault's (code, message) by its path."""
    assert response.status_code == 400, response.content
    return {fault["path"]: (fault["code"], fault["message"]) for fault in response.json()["details"]}
