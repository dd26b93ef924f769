"""What a check found: problems stop something, notes only tell.

A problem names the field, the value that stands there and what would be right, so that it reads the same in a refused
submission, an Event, a condition and on the command line.
"""

import msgspec


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that must be changed before this can run."""

    field: str
    """A path such as ``spec.tasks[0].template.spec.containers[0].image``."""
    value: str
    message: str

    def under(self, prefix: str) -> "Problem":
        """The same problem, with the path seen from further out."""
        return Problem(field=f"{prefix}{self.field}", value=self.value, message=self.message)


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was changed or is worth knowing."""

    field: str
    message: str
