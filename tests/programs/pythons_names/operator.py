WHOSE = "operator"
