#!/usr/bin/env bash
# Stands in for ssh when an MPI launcher starts its daemons: netns_agent.sh [SSH OPTION...] hostN COMMAND...
# runs the command in the network namespace of rank N of the run of tools/netns.sh that WEFT_NETNS_RUN names.
set -euo pipefail

while [[ ${1:-} == -* ]]; do
  case $1 in -l | -p | -o | -i | -F) shift ;; esac # these have a value
  shift
done
namespace=$WEFT_NETNS_RUN-${1#host}
shift
# Like ssh, the words are joined and read by a shell.
exec ip netns exec "$namespace" /bin/sh -c "$*"
