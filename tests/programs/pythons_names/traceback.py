WHOSE = "traceback"
