"""What runs inside a sandbox: a zygote that is forked, or an instance that calls one handler.

Standard library only, and little of that: whatever a module here imports at its top is paid for by
every fresh interpreter. `posix` stands in for `os` and `_json` for `json` for that reason: both are
in the interpreter already or cost one shared object, while `os` adds 15 % to a bare start and
`json`, through `re` and `enum`, half as much again as the whole of it.
"""
