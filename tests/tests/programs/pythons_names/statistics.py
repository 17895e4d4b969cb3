WHOSE = "statistics"
