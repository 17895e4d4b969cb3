WHOSE = "email"
