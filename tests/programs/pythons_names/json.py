WHOSE = "json"
