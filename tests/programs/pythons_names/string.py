WHOSE = "string"
