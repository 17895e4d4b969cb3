WHOSE = "copy"
