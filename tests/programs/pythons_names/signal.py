WHOSE = "signal"
