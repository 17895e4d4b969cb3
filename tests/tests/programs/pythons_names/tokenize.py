WHOSE = "tokenize"
