#!/usr/bin/env bash
# Runs a command across network namespaces of this machine that are joined by limited links: a small emulated cluster
# with real TCP. Needs root. Everything it made is gone when it ends, however it ends; what a killed run left behind
# goes when the next one starts.
#
#   tools/netns.sh --ranks 4 --rate 200mbit -- build/release/weft collective bench
#   tools/netns.sh --ranks 2 --rate 1gbit --delay 100us --mpi mpich -- ./program
#   tools/netns.sh --ranks 3 --no-mpi -- ./program     # one process each, with its WEFT_ variables set
#
# Every namespace is a host: eth0 with the address 10.78.0.(rank+1), `rate` in each direction at once (token buckets at
# both ends of its cable), joined by a bridge. The bridge and the launcher live in a namespace of their own, so runs do
# not see each other and nothing appears among the machine's own interfaces.
#
# With --wiring the hosts are joined by the cables of a file instead, each with a rate of its own, and packets take the
# routes of that file; hosts and switches pass them on. A second network without limits is the launcher's. Lines:
#   link A B RATE       a cable between two ends: ranks (0, 1, ...) or switches (names that begin with a letter)
#   route AT RANK NEXT  what AT has for the rank leaves by its cable to NEXT
set -euo pipefail

readonly prefix=weft-netns        # namespaces are PREFIX-PID-hub, PREFIX-PID-RANK and PREFIX-PID-x-SWITCH
readonly run=$prefix-$$
readonly network=10.78.0 launcher_network=10.79.0 # the second one is there with --wiring
readonly root_port=29478
export WEFT_NETNS_RUN=$run        # for tools/netns_agent.sh
tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat >&2 <<'END'
usage: tools/netns.sh --ranks N [OPTION...] -- COMMAND [ARGUMENT...]
  --ranks N      namespaces, and processes of the command, one in each (1 to 200)
  --rate RATE    of every link in each direction, as tc writes it: 200mbit, 1gbit; none (default): unlimited
  --slow R=RATE  the link of rank R has another rate, in both directions
  --wiring FILE  cables and routes between hosts instead of one bridge, see the head of this script
  --delay TIME   added one way: 100us, 5ms; default none
  --burst SIZE   what a link that was idle lets through at once; default 64kb
  --mpi WHICH    the launcher: openmpi (default) or mpich; the command must be built with the same
  --any-core     let ranks run on any core; default: those of a host on cores of its own, as far as there are enough
  --no-mpi       start the processes without MPI, with WEFT_RANK, WEFT_RANKS, WEFT_ROOT_ADDRESS and WEFT_JOB_SECRET set
The exit code is the command's: the launcher's with MPI, the highest without; 2: bad usage or no rights.
END
  exit 2
}

complain() {
  echo "tools/netns.sh: $*" >&2
  exit 2
}

ranks='' rate=none slow='' wiring='' delay='' burst=64kb mpi=openmpi bound=yes
while (($#)); do
  case $1 in
    --no-mpi) mpi=none; shift ;;
    --any-core) bound=no; shift ;;
    --ranks | --rate | --slow | --wiring | --delay | --burst | --mpi)
      (($# >= 2)) || usage
      declare "${1#--}=$2"
      shift 2 ;;
    --) shift; break ;;
    *) usage ;;
  esac
done
(($#)) || usage
if ! [[ $ranks =~ ^[1-9][0-9]{0,2}$ ]] || ((ranks > 200)); then complain "--ranks '$ranks': 1 to 200 are allowed"; fi
launcher_for_run=$network
[[ -z $wiring ]] || launcher_for_run=$launcher_network
slow_rank=-1 slow_rate=none
if [[ -n $slow ]]; then
  if ! [[ $slow =~ ^([0-9]{1,3})=(.+)$ ]] || ((BASH_REMATCH[1] >= ranks)); then
    complain "--slow '$slow': a rank below $ranks and its rate are needed, such as 3=50mbit"
  fi
  slow_rank=${BASH_REMATCH[1]} slow_rate=${BASH_REMATCH[2]}
fi
if [[ -n $wiring ]]; then
  [[ $rate == none && -z $slow && -z $delay ]] || complain "--wiring: has the rates; --rate, --slow and --delay do not go with it"
  [[ -r $wiring ]] || complain "--wiring '$wiring': is not a file that can be read"
fi
case $mpi in
  none) ;;
  openmpi) launcher=$(command -v mpirun.openmpi || command -v mpirun) || complain "there is no mpirun (openmpi-bin)" ;;
  mpich) launcher=$(command -v mpiexec.hydra) || complain "there is no mpiexec.hydra (mpich)" ;;
  *) complain "--mpi $mpi: openmpi and mpich are allowed" ;;
esac
for tool in ip:iproute2 tc:iproute2 taskset:util-linux; do
  command -v "${tool%:*}" >/dev/null || complain "there is no ${tool%:*} here (${tool#*:})"
done
((EUID == 0)) || complain "network namespaces need root; run it with sudo"

namespaces_of() { ip netns list | awk '{print $1}' | grep -E "^$1-(hub|[0-9]+|x-[a-z][a-z0-9]*)$" || true; }

processes_in() {
  local namespace
  for namespace in "$@"; do ip netns pids "$namespace" 2>/dev/null || true; done
}

# Ends what runs in the namespaces of a run, asking first, and removes them with all their links.
remove_run() {
  local names=() pids=() waited
  mapfile -t names < <(namespaces_of "$1")
  ((${#names[@]})) || return 0
  for ((waited = 0; waited < 20; ++waited)); do
    mapfile -t pids < <(processes_in "${names[@]}")
    ((${#pids[@]})) || break
    if ((waited == 0)); then kill -TERM "${pids[@]}" 2>/dev/null || true; fi
    sleep 0.1
  done
  mapfile -t pids < <(processes_in "${names[@]}")
  if ((${#pids[@]})); then kill -KILL "${pids[@]}" 2>/dev/null || true; fi
  local namespace
  for namespace in "${names[@]}"; do ip netns del "$namespace" 2>/dev/null || true; done
}

remove_stale_runs() {
  local stale pid
  while read -r stale; do
    pid=${stale##*-}
    kill -0 "$pid" 2>/dev/null || remove_run "$stale"
  done < <(ip netns list | awk '{print $1}' | sed -nE "s/^($prefix-[0-9]+)-(hub|[0-9]+|x-[a-z][a-z0-9]*)$/\1/p" | sort -u)
}

children=()
clean_up() {
  local code=$?
  trap '' INT TERM HUP
  if ((${#children[@]})); then kill -TERM "${children[@]}" 2>/dev/null || true; fi
  remove_run "$run"
  exit "$code"
}

# Prints, for every host, the cores that it gets of those that this script may use: its part of them, or one that it
# shares with as few others as can be. Left to itself the scheduler moves ranks that wake each other onto one core, and
# a short program takes twice as long or not, as it happens.
cores_of_hosts() {
  local allowed range rank each all=()
  allowed=$(taskset -cp $$ | sed 's/.*: //') # such as 0-3,6
  for range in ${allowed//,/ }; do mapfile -t -O ${#all[@]} all < <(seq "${range%-*}" "${range#*-}"); done
  each=$((${#all[@]} >= ranks ? ${#all[@]} / ranks : 1))
  for ((rank = 0; rank < ranks; ++rank)); do
    [[ $bound == yes ]] || { echo "$allowed"; continue; }
    (IFS=,; echo "${all[*]:rank * each % ${#all[@]}:each}")
  done
}

# limit RANK NAMESPACE DEVICE [DELAY]: what leaves by the device, which is one end of the rank's cable.
limit() {
  local parent=(root) own=$rate
  (($1 != slow_rank)) || own=$slow_rate
  shift
  if [[ -n ${3:-} ]]; then
    tc -n "$1" qdisc add dev "$2" root handle 1: netem delay "$3" limit 100000 ||
      complain "--delay $3: tc refuses it; the kernel needs sch_netem"
    parent=(parent 1:1)
  fi
  [[ $own == none ]] || tc -n "$1" qdisc add dev "$2" "${parent[@]}" tbf rate "$own" burst "$burst" latency 50ms ||
    complain "--rate $own --burst $burst: tc refuses it; the kernel needs sch_tbf"
}

# limit_packets NAMESPACE DEVICE. Large packets are cut by the card on a real host, and those of several streams take
# turns one by one. Here they pass whole: a quarter of the burst lets streams that meet share a link (with half of it,
# three into one host lost up to a third), and packets of less than 8 KB cost processor time that the ranks would compute
# in.
limit_packets() {
  local packets=16384
  if [[ $burst =~ ^([0-9]+)kb$ ]]; then packets=$((BASH_REMATCH[1] * 256)); fi
  ((packets >= 8192)) || packets=8192
  ip -n "$1" link set "$2" gso_max_size "$packets" 2>/dev/null || true
}

# end_of NAME: the namespace of a rank or a switch of --wiring.
end_of() {
  if [[ $1 =~ ^[0-9]+$ ]] && ((10#$1 < ranks)); then
    echo "$run-$1"
  elif [[ $1 =~ ^[a-z][a-z0-9]*$ ]]; then
    echo "$run-x-$1"
  else
    complain "--wiring $wiring: '$1' is neither a rank below $ranks nor the name of a switch"
  fi
}

# add_cable NUMBER A B RATE: the ends of cable N are lN with the addresses 10.77.N.1 and 10.77.N.2.
declare -A cable_to=() # "A B": the cable's number and B's address on it
add_cable() {
  local number=$1 a=$2 b=$3 own_rate=$4 from to end
  from=$(end_of "$a") to=$(end_of "$b")
  for end in "$from" "$to"; do
    ip netns list | awk '{print $1}' | grep -qxF "$end" || ip netns add "$end"
    ip netns exec "$end" sysctl -qw net.ipv4.ip_forward=1
  done
  ip -n "$from" link add "l$number" type veth peer name "l$number" netns "$to"
  ip -n "$from" addr add "10.77.$number.1/30" dev "l$number"
  ip -n "$to" addr add "10.77.$number.2/30" dev "l$number"
  for end in "$from" "$to"; do
    ip -n "$end" link set "l$number" up
    limit_packets "$end" "l$number"
    tc -n "$end" qdisc add dev "l$number" root tbf rate "$own_rate" burst "$burst" latency 50ms ||
      complain "--wiring $wiring: link $a $b $own_rate: tc refuses it"
  done
  cable_to["$a $b"]="$number 10.77.$number.2"
  cable_to["$b $a"]="$number 10.77.$number.1"
}

add_route() {
  local at=$1 dst=$2 next=$3 source=() cable
  [[ -n ${cable_to["$at $next"]:-} ]] || complain "--wiring $wiring: route $at $dst $next: there is no link $at $next"
  read -ra cable <<<"${cable_to["$at $next"]}"
  if [[ $at =~ ^[0-9]+$ ]]; then source=(src "$network.$((at + 1))"); fi
  ip -n "$(end_of "$at")" route add "$network.$((dst + 1))/32" via "${cable[1]}" dev "l${cable[0]}" "${source[@]}"
}

# Every rank has eth0, whose address the others know, and ctl0 of the launcher's network.
make_wired_network() {
  local rank word a b c cables=0
  ip netns add "$run-hub"
  ip -n "$run-hub" link set lo up
  ip -n "$run-hub" link add ctl0 type bridge
  ip -n "$run-hub" addr add $launcher_network.254/24 dev ctl0
  ip -n "$run-hub" link set ctl0 up
  for ((rank = 0; rank < ranks; ++rank)); do
    ip netns add "$run-$rank"
    ip -n "$run-$rank" link set lo up
    ip -n "$run-$rank" link add eth0 type veth peer name eth0-far
    ip -n "$run-$rank" addr add "$network.$((rank + 1))/24" dev eth0
    ip -n "$run-$rank" link set eth0-far up
    ip -n "$run-$rank" link set eth0 up
    ip -n "$run-hub" link add "port$rank" type veth peer name ctl0 netns "$run-$rank"
    ip -n "$run-hub" link set "port$rank" master ctl0 up
    ip -n "$run-$rank" addr add "$launcher_network.$((rank + 1))/24" dev ctl0
    ip -n "$run-$rank" link set ctl0 up
    ip netns exec "$run-$rank" sysctl -qw net.ipv4.tcp_slow_start_after_idle=0 || true
  done
  while read -r word a b c; do
    case $word in
      link) add_cable $((++cables)) "$a" "$b" "$c" ;;
      route) add_route "$a" "$b" "$c" ;;
      '' | '#'*) ;;
      *) complain "--wiring $wiring: '$word' is neither link nor route" ;;
    esac
  done <"$wiring"
}

# The bridge is called eth0 too: launchers are told one interface for all hosts.
make_network() {
  local rank
  if [[ -n $wiring ]]; then make_wired_network; return; fi
  ip netns add "$run-hub"
  ip -n "$run-hub" link add eth0 type bridge
  ip -n "$run-hub" addr add $network.254/24 dev eth0
  ip -n "$run-hub" link set lo up
  ip -n "$run-hub" link set eth0 up
  for ((rank = 0; rank < ranks; ++rank)); do
    ip netns add "$run-$rank"
    ip -n "$run-hub" link add port$rank type veth peer name eth0 netns "$run-$rank"
    ip -n "$run-hub" link set port$rank master eth0 up
    ip -n "$run-$rank" link set lo up
    ip -n "$run-$rank" addr add $network.$((rank + 1))/24 dev eth0
    ip -n "$run-$rank" link set eth0 up
    limit_packets "$run-$rank" eth0
    # As hosts of a cluster are tuned: a connection that rested for a moment between two collectives need not start slowly.
    ip netns exec "$run-$rank" sysctl -qw net.ipv4.tcp_slow_start_after_idle=0 || true
    limit $rank "$run-$rank" eth0 "$delay"
    limit $rank "$run-hub" port$rank
  done
}

# Launchers see host0, host1, ...; tools/netns_agent.sh knows the namespaces.
hosts() {
  local rank list=''
  for ((rank = 0; rank < ranks; ++rank)); do list+=host$rank$1,; done
  echo "${list%,}"
}

# What a user of our command must not have to know. A setting of the user's own wins.
start_openmpi() {
  : "${OMPI_MCA_mpi_yield_when_idle=1}" # waiting inside the library leaves the core to others
  export OMPI_MCA_mpi_yield_when_idle
  ip netns exec "$run-hub" "$launcher" --allow-run-as-root -np "$ranks" --host "$(hosts :1)" \
    --mca plm rsh --mca plm_rsh_agent "$tools/netns_agent.sh" --mca plm_rsh_no_tree_spawn 1 \
    --mca oob_tcp_if_include "${launcher_for_run}.0/24" --mca btl_tcp_if_include $network.0/24 \
    --mca pml ob1 --mca btl tcp,self --bind-to none "$@" <&0 &
  children+=($!)
}

# Debian's MPICH talks through UCX, which sees one machine and would pass everything by shared memory.
start_mpich() {
  export UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 MPIR_CVAR_NOLOCAL=1
  ip netns exec "$run-hub" "$launcher" -n "$ranks" -hosts "$(hosts '')" -ppn 1 \
    -launcher ssh -launcher-exec "$tools/netns_agent.sh" -iface eth0 -localhost "${launcher_for_run}.254" "$@" <&0 &
  children+=($!)
}

start_without_mpi() {
  local rank secret
  secret=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
  for ((rank = 0; rank < ranks; ++rank)); do
    WEFT_RANK=$rank WEFT_RANKS=$ranks WEFT_ROOT_ADDRESS=$network.1:$root_port WEFT_JOB_SECRET=$secret \
      ip netns exec "$run-$rank" taskset -c "${cores[rank]}" "$@" </dev/null &
    children+=($!)
  done
}

# The highest exit code; a signal to this script ends the wait and then the script.
wait_for_all() {
  local child code worst=0
  for child in "${children[@]}"; do
    code=0
    wait "$child" || code=$?
    if ((code > worst)); then worst=$code; fi
  done
  return "$worst"
}

trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

mapfile -t cores < <(cores_of_hosts)
export WEFT_NETNS_CORES="${cores[*]}"
remove_stale_runs
make_network
if [[ -n $wiring ]]; then described="cables of $wiring"; else described="links $rate each way${delay:+, $delay one way}"; fi
echo "netns: $ranks hosts on this machine, $described (emulated)" >&2
case $mpi in
  openmpi) start_openmpi "$@" ;;
  mpich) start_mpich "$@" ;;
  none) start_without_mpi "$@" ;;
esac
code=0
wait_for_all || code=$?
children=()
exit "$code"
