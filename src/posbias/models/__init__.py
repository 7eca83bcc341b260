"""Models: loading, where x and a live in each architecture, position scheme, checks (needs torch).

`posbias.models.architectures` holds the facts as data; `posbias.models.stream` certifies them on
the loaded model or searches for unknown ones; `posbias.models.tap` sees the attention;
`posbias.models.preflight` proves all of it before a measurement.
"""
