WHOSE = "re"
