"""The kit for authors of connectors: runs them without a broker and without Java, in milliseconds. Public.

Authors import functions and suites from here; the modules are in ``kit``. No other package of Penstock imports from
here. The doubles and processes of Penstock's own tests are outside of the wheel, in the folder testkit of the checkout;
the embedded broker is in ``penstock.broker``.
"""

from penstock.testing import kit
from penstock.testing.kit import *  # noqa: F403 - one list says what is public

__all__ = kit.__all__
