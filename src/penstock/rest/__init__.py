"""The REST API: the only place that knows HTTP and the web framework.

Main types: ``RestServer`` (a thread with its listeners), ``build_app`` (routes over a ``Herder``). Handlers never touch
the herder's state: they read its snapshot or await the future of a request.
"""
