WHOSE = "ctypes"
