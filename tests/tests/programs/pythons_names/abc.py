WHOSE = "abc"
