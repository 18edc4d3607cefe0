#!/usr/bin/env bash
# gpu_ranks.sh RANKS COMMAND [ARGUMENT...]: so many ranks of a command on one GPU, each a process with an equal share of
# its SMs (MPS) that NCCL takes for a host of its own: they talk over sockets on loopback. The ranks know each other by
# the variables that `weft run` reads (src/comm/launch.hpp). The exit code is that of the first rank that fails, 77 where
# there is no GPU, and 2 where MPS is missing. When a rank fails, the others have GPU_RANKS_GRACE seconds (15) to end.
# GPU_RANKS_LOG=FILE: gets a line `started RANK PID` for each rank, and `ended RANK CODE` for each that has ended.
set -euo pipefail

if (($# < 2)) || ! [[ $1 =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: $0 RANKS COMMAND [ARGUMENT...]" >&2
  exit 2
fi
ranks=$1
shift
most=48 # processes that MPS serves on a GPU at a time, on all GPUs from Volta to Hopper
if ((ranks > most)); then
  echo "$0: $ranks ranks: MPS shares a GPU between at most $most processes" >&2
  exit 2
fi
if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >/dev/null 2>&1; then
  echo "skipped: nvidia-smi is not here or finds no GPU"
  exit 77
fi
if ! command -v nvidia-cuda-mps-control >/dev/null; then
  echo "$0: nvidia-cuda-mps-control is not here: without MPS the ranks take turns on the GPU, and NCCL waits for ever" >&2
  exit 2
fi

# Folders of our own, so that a daemon of somebody else is left alone.
work=$(mktemp -d)
export CUDA_MPS_PIPE_DIRECTORY=$work/pipe CUDA_MPS_LOG_DIRECTORY=$work/log
mkdir "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
declare -A running=()
watch=
finish() {
  for pid in "${!running[@]}" $watch; do kill -KILL "$pid" 2>/dev/null || true; done
  echo quit | timeout 10 nvidia-cuda-mps-control >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM
if ! nvidia-cuda-mps-control -d; then
  echo "$0: the MPS daemon does not start; its log says: $(tail -n 3 "$CUDA_MPS_LOG_DIRECTORY"/control.log 2>/dev/null)" >&2
  exit 2
fi

export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=$((100 / ranks))
# With fewer hardware queues NCCL's kernels wait behind products, and products behind them. The ranks share those of the
# GPU: with 32 for each of four ranks, one of them found no memory to start.
connections=$((64 / ranks))
connections=$((connections > 32 ? 32 : connections < 1 ? 1 : connections))
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-$connections}
export NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1
export WEFT_RANKS=$ranks WEFT_LOCAL_RANK=0 WEFT_ROOT_ADDRESS=127.0.0.1:$((20000 + $$ % 10000))
WEFT_JOB_SECRET=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
export WEFT_JOB_SECRET

log=${GPU_RANKS_LOG:-/dev/null}
for ((rank = 0; rank < ranks; ++rank)); do
  WEFT_RANK=$rank NCCL_HOSTID=weft-rank-$rank "$@" &
  running[$!]=$rank
  echo "started $rank $!" >>"$log"
done
status=0
while ((${#running[@]} > 0)); do
  code=0
  wait -n -p ended "${!running[@]}" || code=$?
  echo "ended ${running[$ended]} $code" >>"$log"
  unset "running[$ended]"
  if ((code != 0 && status == 0)); then
    status=$code
    # Others may wait for it for ever.
    (sleep "${GPU_RANKS_GRACE:-15}" && kill -KILL "${!running[@]}") >/dev/null 2>&1 &
    watch=$!
    disown "$watch"
  fi
done
exit "$status"
