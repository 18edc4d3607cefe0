#!/usr/bin/env bash
# Stands in for ssh when an MPI launcher starts its daemons: netns_agent.sh [SSH OPTION...] hostN COMMAND...
# runs the command in the network namespace of rank N of the run of tools/netns.sh that WEFT_NETNS_RUN names.
set -euo pipefail

while [[ ${1:-} == -* ]]; do
  case $1 in -l | -p | -o | -i | -F) shift ;; esac # these have a value
  shift
done
host=$1
shift
read -ra cores <<<"$WEFT_NETNS_CORES" # of every rank, see tools/netns.sh
# Like ssh, the words are joined and read by a shell. The host gets its own name: Open MPI's daemons keep their files in
# a folder named after it, and two that shared one sometimes removed each other's; the launcher then waited for ever.
exec ip netns exec "$WEFT_NETNS_RUN-${host#host}" unshare --uts taskset -c "${cores[${host#host}]}" \
  /bin/sh -c 'echo "$1" >/proc/sys/kernel/hostname; eval "$2"' sh "$WEFT_NETNS_RUN-$host" "$*"
