"""Who may come in: bearer tokens, each of which is a tenant's."""

import hmac
from collections.abc import Mapping


class Tokens:
    """The tokens that are let in.

    Args:
        tokens: The tenant of each; without any, nobody is asked for one.
    """

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._tokens = [(token.encode(), tenant) for token, tenant in tokens.items()]

    def tenant_of(self, authorization: bytes) -> str | None:
        """Whose token a request brings: empty where nobody is asked for one, None where it is not known.

        Args:
            authorization: The header of that name; empty if there is none.
        """
        if not self._tokens:
            return ""
        scheme, _, given = authorization.partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        found = None
        for token, tenant in self._tokens:  # all of them, so that the time tells nothing
            if hmac.compare_digest(token, given.strip()):
                found = tenant
        return found
