WHOSE = "queue"
