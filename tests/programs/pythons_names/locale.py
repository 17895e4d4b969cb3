WHOSE = "locale"
