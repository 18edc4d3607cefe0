#!/usr/bin/env bash
# tools/netns.sh: runs across namespaces, gives back the exit code, and leaves nothing behind: neither after success nor
# failure nor a signal. Exit code 77, with the reason, where namespaces are not permitted.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
netns=$root/tools/netns.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

skip() { echo "skipped: $*"; exit 77; }
fail() { echo "FAILED: $*"; cat "$work"/* 2>/dev/null; exit 1; }

((EUID == 0)) || skip "network namespaces need root"
for tool in ip tc; do command -v $tool >/dev/null || skip "there is no $tool (iproute2)"; done
# Limits are what the rest is worth testing for: one run with all of it must be permitted.
timeout 60 "$netns" --ranks 1 --rate 200mbit --no-mpi -- true 2>"$work/probe" || skip "$(tail -1 "$work/probe")"

expect_code() {
  local expected=$1 code=0
  shift
  timeout 60 "$@" >"$work/out" 2>"$work/err" || code=$?
  ((code == expected)) || fail "$*: exit code $code, expected $expected"
}

# Namespaces carry the process id of the script that made them.
expect_nothing_of() {
  ! ip netns list | grep -q "^weft-netns-$1-" || fail "$2: namespaces of run $1 are still there"
}

# A process that has ended may stay in the list until its parent asks for it.
is_running() { [[ $(ps -o stat= -p "$1") =~ ^[^Z] ]]; }

lines() { sort "$work/out" | tr '\n' ' '; }

say_who='echo "$WEFT_RANK of $WEFT_RANKS at $(ip -4 -br addr show eth0 | awk "{print \$3}")"'

echo "one process in each namespace, with its own address"
expect_code 0 "$netns" --ranks 3 --rate 200mbit --no-mpi -- sh -c "$say_who"
[[ $(lines) == "0 of 3 at 10.78.0.1/24 1 of 3 at 10.78.0.2/24 2 of 3 at 10.78.0.3/24 " ]] || fail "ranks: $(lines)"

echo "the links are limited in both directions"
expect_code 0 "$netns" --ranks 2 --rate 200mbit --no-mpi -- tc qdisc show dev eth0
[[ $(grep -c 'tbf.*rate 200Mbit' "$work/out") == 2 ]] || fail "no limit on the way out: $(lines)"

echo "one link may be slower than the others"
expect_code 0 "$netns" --ranks 3 --rate 200mbit --slow 1=50mbit --no-mpi -- tc qdisc show dev eth0
[[ $(grep -c 'tbf.*rate 200Mbit' "$work/out") == 2 ]] || fail "the other links: $(lines)"
[[ $(grep -c 'tbf.*rate 50Mbit' "$work/out") == 1 ]] || fail "no slow link: $(lines)"

echo "cables and routes of a file join hosts and switches"
cat >"$work/wires" <<'END'
# 0 and 1 at a switch, 2 behind 1
link 0 s 200mbit
link s 1 100mbit
link 1 2 50mbit
route 0 1 s
route 0 2 s
route s 0 0
route s 1 1
route s 2 1
route 1 0 s
route 1 2 2
route 2 0 1
route 2 1 1
END
show_way='if [ "$WEFT_RANK" = 0 ]; then ip -o route get 10.78.0.3 | tr -s " "; tc qdisc show dev l1; fi'
expect_code 0 "$netns" --ranks 3 --wiring "$work/wires" --no-mpi -- sh -c "$show_way"
grep -q '^10.78.0.3 via 10.77.1.2 dev l1 src 10.78.0.1' "$work/out" || fail "the way from 0 to 2: $(lines)"
grep -q 'tbf.*rate 200Mbit' "$work/out" || fail "no limit on a cable: $(lines)"
# A word gets from rank 2 to rank 0 over rank 1 and the switch.
talk='import os, socket
a = ("10.78.0.1", 5000)
if os.environ["WEFT_RANK"] == "0":
    with socket.create_server(a) as s:
        c, who = s.accept()
        print(who[0], c.recv(5).decode())
elif os.environ["WEFT_RANK"] == "2":
    for _ in range(200):
        try:
            socket.create_connection(a, 5).sendall(b"hello")
            break
        except OSError:
            __import__("time").sleep(0.05)'
expect_code 0 "$netns" --ranks 3 --wiring "$work/wires" --no-mpi -- python3 -c "$talk"
[[ $(cat "$work/out") == "10.78.0.3 hello" ]] || fail "over the cables: $(cat "$work/out")"
for bad in 'link 0 3 1mbit' 'link 0 S 1mbit' 'route 0 1 1' 'cable 0 1 1mbit' 'link 0 1 quick'; do
  echo "$bad" >"$work/bad-wires"
  expect_code 2 "$netns" --ranks 3 --wiring "$work/bad-wires" --no-mpi -- true
done
expect_code 2 "$netns" --ranks 3 --wiring "$work/wires" --rate 1mbit --no-mpi -- true

echo "hosts have cores of their own, unless told otherwise"
say_cores='echo "$WEFT_RANK on $(taskset -cp $$ | sed "s/.*: //")"'
mine=$(taskset -cp $$ | sed 's/.*: //')
expect_code 0 "$netns" --ranks 2 --no-mpi -- sh -c "$say_cores"
if (($(nproc) >= 2)); then
  [[ $(sed 's/^[01] //' "$work/out" | sort -u | wc -l) == 2 ]] || fail "two hosts, $(nproc) cores: $(lines)"
fi
expect_code 0 taskset -c "${mine%%[,-]*}" "$netns" --ranks 2 --no-mpi -- sh -c "$say_cores"
[[ $(lines) == "0 on ${mine%%[,-]*} 1 on ${mine%%[,-]*} " ]] || fail "two hosts, one core: $(lines)"
expect_code 0 "$netns" --ranks 2 --any-core --no-mpi -- sh -c "$say_cores"
[[ $(lines) == "0 on $mine 1 on $mine " ]] || fail "--any-core: $(lines)"

echo "the highest exit code is given back"
expect_code 2 "$netns" --ranks 3 --no-mpi -- sh -c 'exit $WEFT_RANK'

echo "bad usage is refused"
expect_code 2 "$netns" --ranks 0 -- true
expect_code 2 "$netns" --ranks 2 --mpi other -- true
expect_code 2 "$netns" --ranks 2
expect_code 2 "$netns" --ranks 2 --rate quick --no-mpi -- true
expect_code 2 "$netns" --ranks 2 --slow 2=50mbit --no-mpi -- true
expect_code 2 "$netns" --ranks 2 --slow 50mbit --no-mpi -- true
ip netns list | awk '{print $1}' >"$work/left"
while read -r name; do # other runs may be under way; those of dead scripts may not
  pid=$(sed -nE 's/^weft-netns-([0-9]+)-.*/\1/p' <<<"$name")
  [[ -z $pid ]] || kill -0 "$pid" 2>/dev/null || fail "$name is still there"
done <"$work/left"

# Started in the background and told to stop when all ranks run; `sleep` stands for a rank that does not end by itself.
stop_by() {
  local signal=$1 expected=$2 pid code=0 tries
  rm -f "$work"/here.*
  "$netns" --ranks 3 --no-mpi -- sh -c 'touch "$1/here.$WEFT_RANK"; exec sleep 1000' sh "$work" 2>/dev/null &
  pid=$!
  for ((tries = 0; tries < 300; ++tries)); do
    [[ -e $work/here.0 && -e $work/here.1 && -e $work/here.2 ]] && break
    sleep 0.1
  done
  local processes
  processes=$(ip netns pids "weft-netns-$pid-2")
  [[ -n $processes ]] || fail "rank 2 does not run"
  kill "-$signal" "$pid"
  wait "$pid" 2>/dev/null || code=$?
  ((code == expected)) || fail "SIG$signal: exit code $code, expected $expected"
  if [[ $signal == KILL ]]; then # nobody could clean up: the next run does
    expect_code 0 "$netns" --ranks 1 --no-mpi -- true
  fi
  expect_nothing_of "$pid" "SIG$signal"
  ! is_running "$processes" || fail "SIG$signal: process $processes of rank 2 is still there"
}
for signal in TERM HUP; do
  echo "nothing is left after SIG$signal"
  stop_by $signal $((128 + $(kill -l $signal)))
done
echo "the next run removes what SIGKILL left"
stop_by KILL 137

if command -v mpirun.openmpi >/dev/null; then
  echo "under Open MPI, with its exit code"
  expect_code 0 "$netns" --ranks 3 --rate 200mbit -- sh -c 'echo "$OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE"'
  [[ $(lines) == "0 of 3 1 of 3 2 of 3 " ]] || fail "ranks: $(lines)"
  expect_code 5 "$netns" --ranks 2 -- sh -c 'exit 5'
fi
if command -v mpiexec.hydra >/dev/null; then
  echo "under MPICH, with its exit code"
  expect_code 0 "$netns" --ranks 3 --mpi mpich -- sh -c 'echo "$PMI_RANK of $PMI_SIZE"'
  [[ $(lines) == "0 of 3 1 of 3 2 of 3 " ]] || fail "ranks: $(lines)"
  expect_code 5 "$netns" --ranks 2 --mpi mpich -- sh -c 'exit 5'
fi
echo "ok"
