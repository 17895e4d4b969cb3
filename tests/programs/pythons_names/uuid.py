WHOSE = "uuid"
