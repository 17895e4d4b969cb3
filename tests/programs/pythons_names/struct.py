WHOSE = "struct"
