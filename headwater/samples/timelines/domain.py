"""Posts, and who follows whom."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from headwater import Observation

Name = Annotated[str, Field(min_length=1, max_length=100)]


class AuthorFollowed(Observation, type="author_followed"):
    """A reader follows an author."""

    reader: Name
    author: Name


class AuthorUnfollowed(Observation, type="author_unfollowed"):
    """A reader does not follow an author any more."""

    reader: Name
    author: Name


class PostWritten(Observation, type="post_written"):
    """An author has written a post."""

    post: Name
    author: Name
    text: Annotated[str, Field(max_length=1_000)]


class PostDeleted(Observation, type="post_deleted"):
    """An author has deleted a post."""

    post: Name
    author: Name
