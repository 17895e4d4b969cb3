WHOSE = "io"
