WHOSE = "random"
