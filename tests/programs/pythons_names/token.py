WHOSE = "token"
