WHOSE = "calendar"
