WHOSE = "select"
