"""Tokens: whose each is, and what a request brings of them."""

import base64
import binascii
import hmac
from collections.abc import Mapping
from typing import Final

ALL: Final = "*"
"""The tenant in a file of tokens that stands for all: its token shows all runs, and sends none."""


class Tokens:
    """Who is let in.

    Args:
        tenants: The tenant of each token; without any, nobody is asked for one.
    """

    def __init__(self, tenants: Mapping[str, str]) -> None:
        self._sole = len(set(tenants.values())) == 1
        self._tenants = [(token.encode(), tenant) for token, tenant in tenants.items()]

    def __bool__(self) -> bool:
        return bool(self._tenants)

    def tenant_of_bearer(self, authorization: bytes) -> str | None:
        """Whose bearer token a request brings.

        Args:
            authorization: The header's value; empty where there is none.

        Returns:
            The tenant; empty where nobody is asked for a token, None where it is not known.
        """
        if not self._tenants:
            return ""
        scheme, _, given = authorization.partition(b" ")
        return self._tenant_of(given) if scheme.lower() == b"bearer" else None

    def tenant_of(self, authorization: bytes) -> str | None:
        """The same where a token may be the password of HTTP Basic too, as browsers send it, of any user."""
        scheme, _, given = authorization.partition(b" ")
        if not self._tenants or scheme.lower() != b"basic":
            return self.tenant_of_bearer(authorization)
        try:
            password = base64.b64decode(given.strip(), validate=True).partition(b":")[2]
        except binascii.Error:
            return None
        return self._tenant_of(password)

    def may_see_metrics(self, tenant: str) -> bool:
        """Whether a tenant may see the metrics, which tell of all of them: the only one of the file may."""
        return not self._tenants or self._sole or tenant == ALL

    def _tenant_of(self, given: bytes) -> str | None:
        found = None
        for token, tenant in self._tenants:  # all of them, so that the time tells nothing
            if hmac.compare_digest(token, given.strip()):
                found = tenant
        return found
