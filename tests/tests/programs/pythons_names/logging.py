WHOSE = "logging"
