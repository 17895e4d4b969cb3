WHOSE = "ssl"
