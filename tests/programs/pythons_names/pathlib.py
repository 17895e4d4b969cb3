WHOSE = "pathlib"
