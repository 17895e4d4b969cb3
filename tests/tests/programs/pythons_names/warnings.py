WHOSE = "warnings"
