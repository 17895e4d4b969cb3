WHOSE = "numbers"
