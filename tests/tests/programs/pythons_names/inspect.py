WHOSE = "inspect"
