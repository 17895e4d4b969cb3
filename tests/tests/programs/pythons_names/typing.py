WHOSE = "typing"
