WHOSE = "ast"
