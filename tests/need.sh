#!/bin/bash
# What a test's script calls for and is not here: installed where root has apt, else named.
#
#   need.sh TOOL:PACKAGE...      ends with 1 where one is still missing
set -euo pipefail
export PATH=$PATH:/sbin:/usr/sbin
missing=()
for wanted in "$@"; do
    command -v "${wanted%%:*}" >/dev/null || missing+=("${wanted#*:}")
done
[ ${#missing[@]} != 0 ] || exit 0
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "installing ${missing[*]}"
    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install "${missing[@]}"; } >/dev/null && exit 0
fi
echo "error: missing; install the packages ${missing[*]}" >&2
exit 1
