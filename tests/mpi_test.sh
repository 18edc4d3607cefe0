#!/usr/bin/env bash
# mpi_test.sh LAUNCHER RANKS PROGRAM [ARGUMENT...]: runs a test program under MPI on this machine, whichever MPI it is.
# Exit code 77, with the reason, where there is no launcher.
set -euo pipefail

launcher=$1 ranks=$2
shift 2
if [[ -z $launcher ]] || ! command -v "$launcher" >/dev/null; then
  echo "skipped: the MPI launcher '$launcher' is not here (Debian: openmpi-bin)"
  exit 77
fi
# More ranks than cores must work too: tests say nothing about speed, but who waits lets others run.
export OMPI_MCA_mpi_yield_when_idle=1
options=()
if "$launcher" --version 2>&1 | grep -q 'Open MPI\|OpenRTE'; then
  options=(--oversubscribe --bind-to none)
  ((EUID == 0)) && options+=(--allow-run-as-root)
fi
exec "$launcher" -n "$ranks" "${options[@]}" "$@"
