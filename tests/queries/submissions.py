"""Faults in answers to a submission, and its number of statements."""

# Two of these begin and end the only transaction. A second transaction would sync the disk again.
STATEMENTS_OF_A_SUBMISSION = 17
# The lock of the user, on databases that lock rows.
LOCKS = 1


def faults(response) -> dict[str, tuple[str, str]]:
    """Return (code, message) by path."""
    assert response.status_code == 400, response.content
    return {fault["path"]: (fault["code"], fault["message"]) for fault in response.json()["details"]}
