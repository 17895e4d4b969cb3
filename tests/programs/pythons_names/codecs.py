WHOSE = "codecs"
