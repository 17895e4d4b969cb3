WHOSE = "secrets"
