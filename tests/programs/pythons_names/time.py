WHOSE = "time"
