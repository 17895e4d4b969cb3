WHOSE = "socket"
