WHOSE = "functools"
