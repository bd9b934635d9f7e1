"""placeholder until the face is merged"""


def __getattr__(name):
    import commands
    import eventlog.capturing
    import projections

    for m in (commands, projections, eventlog.capturing):
        if name in m.__all__:
            return getattr(m, name)
    raise AttributeError(name)
