WHOSE = "types"
