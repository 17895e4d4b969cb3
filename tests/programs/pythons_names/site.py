WHOSE = "site"
