"""The check that the methods of an author's class can be called as the worker calls them; made once, before any call.

Main function: ``check_methods``. Pure; any thread.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Final

#: Where the classes are that authors extend: a public method there is one that the worker calls with all its arguments.
_API: Final = ("penstock.api.", "penstock.config.providers")
#: Methods that Java has in more forms than one, and the arguments of the other form.
_OTHER_FORMS: Final = {"commit_record": ("record", "metadata")}


class SignatureError(TypeError):
    """A method that the worker cannot call; the text names it and the form that is wanted."""


@functools.lru_cache(maxsize=1024)
def check_methods(cls: type) -> None:
    """Returns when the worker can call every method that a class overrides.

    Raises:
        SignatureError: it cannot call one; the first is named.
    """
    for name, arguments in _methods_of_bases(cls):
        member = inspect.getattr_static(cls, name)
        where = f"{cls.__module__}.{cls.__qualname__}.{name}"
        wanted = f"the worker calls {name}({', '.join(arguments)})"
        method: object = getattr(cls, name)
        if not callable(method):
            raise SignatureError(f"{where} is {type(member).__name__}, not a method: {wanted}")
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            raise SignatureError(f"{where} must not be async: {wanted} and takes what it returns")
        try:
            # Without regard to __wrapped__: it is the wrapper that is called.
            signature = inspect.signature(method, follow_wrapped=False)
        except (ValueError, TypeError):
            continue  # one that is not written in Python tells nothing
        owner = () if isinstance(member, (staticmethod, classmethod)) else ("self",)
        forms = [form for form in (arguments, _OTHER_FORMS.get(name)) if form is not None]
        reasons = [reason for form in forms if (reason := _refusal(signature, owner + form)) is not None]
        if len(reasons) == len(forms):
            also = "".join(f", or {name}({', '.join(form)})" for form in forms[1:])
            raise SignatureError(f"{where}{signature} cannot be called: {wanted}{also} ({reasons[0]})")


def _methods_of_bases(cls: type) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The methods of the API that a class has in another form, and what the worker gives them."""
    seen: set[str] = set()
    for base in cls.__mro__:
        if not f"{base.__module__}.".startswith(_API):
            continue
        for name, method in vars(base).items():
            if name.startswith("_") or name in seen or not inspect.isfunction(method):
                continue
            seen.add(name)
            if inspect.getattr_static(cls, name) is not method:
                yield name, tuple(inspect.signature(method).parameters)[1:]


def _refusal(signature: inspect.Signature, arguments: tuple[str, ...]) -> str | None:
    try:
        signature.bind(*arguments)
    except TypeError as error:
        return str(error)
    return None
