WHOSE = "collections"
