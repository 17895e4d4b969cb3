WHOSE = "threading"
