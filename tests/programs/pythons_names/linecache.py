WHOSE = "linecache"
