WHOSE = "enum"
