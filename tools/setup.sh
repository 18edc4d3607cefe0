#!/usr/bin/env bash
# Installs what the build needs and this machine lacks, from Debian packages. Quiet when nothing is missing.
# What counts is whether a tool or header can be found, not who installed it, so other systems work too.
#
#   tools/setup.sh                     what build, tests and benchmarks need
#   tools/setup.sh --with fuzz,tidy    also the tools of `make fuzz`, `make tidy` and `make format`
#   tools/setup.sh --with web          also a browser and its driver, in which `make test` tests the page of reports
set -euo pipefail

# package|probe: a command, a <header> or a function of this script. One group per reason.
compile=(        # the compiler, the build and the scripts that check the repository
  'g++|g++'
  'cmake|cmake'
  'python3|python3'
)
libraries=(      # formatting, JSON, the command line, compression, proofs that a process belongs to a job
  'libfmt-dev|<fmt/format.h>'
  'nlohmann-json3-dev|<nlohmann/json.hpp>'
  'zlib1g-dev|<zlib.h>'
  'libcli11-dev|<CLI/CLI.hpp>'
  'libssl-dev|<openssl/evp.h>'
)
checking=(       # tests
  'libgtest-dev|<gtest/gtest.h>'
)
optional=(       # Weft is built without what these give where they cannot be installed
  'libpugixml-dev|<pugixml.hpp>'  # MSCCL XML
  'libopenmpi-dev|mpicxx'         # ranks under MPI
  'openmpi-bin|mpirun'
  'iproute2|tc'                   # emulated networks of namespaces
  'librsvg2-2|librsvg'            # figures as PNG and PDF
  'coinor-libcbc3|cbc-solver'     # exact flows of all_to_alls
  'libtorch-dev|libtorch'         # the kernels of `weft run`
  'libopenblas0-pthread|openblas' # libtorch's matrix products; ten times slower with the reference BLAS
  'python3-torch|torch-in-python' # what the tests of training compare with
  'pybind11-dev|<pybind11/pybind11.h>' # the backend of torch.distributed, beside Debian's PyTorch
  'python3-dev|<python3.11/Python.h>'
)
speed=(          # faster builds; the Makefile manages without, so these alone never start an installation
  'ninja-build|ninja'
  'ccache|ccache'
)
fuzz=(           # libFuzzer needs clang; Debian's default clang 14 cannot read libstdc++ 12's ranges
  'clang-19|clang++-19'
  'libclang-rt-19-dev|fuzzer-runtime'
)
tidy=(           # static analysis and formatting
  'clang-19|clang++-19'
  'clang-tidy-19|clang-tidy-19'
  'clang-format-19|clang-format-19'
)
web=(            # the page of reports in a real browser; without these its tests are skipped
  'chromium|chromium'
  'nodejs|node'
  'npm|npm'
)

cbc-solver() {
  compgen -G '/usr/lib/*/libCbcSolver.so.3' >/dev/null || compgen -G '/usr/lib*/libCbcSolver.so.3' >/dev/null
}
fuzzer-runtime() {
  command -v clang++-19 >/dev/null || return 1
  compgen -G "$(clang++-19 -print-resource-dir)/lib/*/libclang_rt.fuzzer*" >/dev/null
}

# PyTorch, wherever it lies: importing it takes seconds, finding it does not.
torch_package() {
  "$1" -c "import importlib.util as u, sys; s = u.find_spec('torch'); s or sys.exit(1); print(s.submodule_search_locations[0])" \
    2>/dev/null
}
libtorch() {
  has_header '<ATen/ATen.h>' || [[ -e $(torch_package python3)/include/ATen/ATen.h ]]
}
torch-in-python() {
  torch_package /usr/bin/python3 >/dev/null || torch_package python3 >/dev/null
}
librsvg() {
  compgen -G '/usr/lib/*/librsvg-2.so.2' >/dev/null || compgen -G '/usr/lib*/librsvg-2.so.2' >/dev/null
}
# A PyTorch from elsewhere brings its own matrix products.
openblas() {
  compgen -G '/usr/lib/*/openblas-pthread/libopenblas.so.0' >/dev/null || { ! has_header '<ATen/ATen.h>' && libtorch; }
}

find_compiler() {
  local candidate
  for candidate in "${CXX:-}" g++ c++; do
    if [[ -n $candidate ]] && command -v "$candidate" >/dev/null; then
      echo "$candidate"
      return
    fi
  done
}

# CMake also looks below the folders of CMAKE_PREFIX_PATH, so the header probe does too.
has_header() {
  local prefix prefixes includes=()
  IFS=':;' read -ra prefixes <<<"${CMAKE_PREFIX_PATH:-}"
  for prefix in "${prefixes[@]}"; do includes+=("-I$prefix/include"); done
  [[ -n $compiler ]] || return 1
  printf '#if !__has_include(%s)\n#error\n#endif\n' "$1" |
    "$compiler" "${includes[@]}" -E -x c++ - >/dev/null 2>&1
}

is_present() {
  case $1 in
    '<'*) has_header "$1" ;;
    g++) [[ -n $compiler ]] ;;
    *) command -v "$1" >/dev/null && { [[ $(type -t "$1") != function ]] || "$1"; } ;;
  esac
}

usage() {
  echo "usage: tools/setup.sh [--with fuzz,tidy,web]" >&2
  exit 2
}

required=("${compile[@]}" "${libraries[@]}" "${checking[@]}")
with_web=false
while (($#)); do
  [[ $1 == --with && $# -ge 2 ]] || usage
  IFS=, read -ra extras <<<"$2"
  for extra in "${extras[@]}"; do
    case $extra in
      fuzz) required+=("${fuzz[@]}") ;;
      tidy) required+=("${tidy[@]}") ;;
      web) optional+=("${web[@]}"); with_web=true ;;
      *) echo "tools/setup.sh: --with $extra: not one of fuzz, tidy, web" >&2; usage ;;
    esac
  done
  shift 2
done

compiler=$(find_compiler)
packages=()
reasons=()
note_missing() {
  local entry package
  for entry in "$@"; do
    package=${entry%%|*}
    is_present "${entry##*|}" && continue
    [[ " ${packages[*]-} " == *" $package "* ]] && continue
    packages+=("$package")
    reasons+=("${entry##*|}")
  done
}

can_install() { command -v apt-get >/dev/null && ((EUID == 0)); }

install() {
  echo "Installing from Debian packages: $*" >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq && apt-get install -y --no-install-recommends -qq "$@" >/dev/null
}

install_required() {
  note_missing "${required[@]}"
  ((${#packages[@]})) || return 0
  # Without a compiler every header looks missing; apt skips what is installed already.
  note_missing "${speed[@]}"
  echo "Weft needs what this machine lacks: ${reasons[*]}" >&2
  if ! command -v apt-get >/dev/null; then
    echo "There is no apt-get here. Install what Debian calls: ${packages[*]}" >&2
    exit 1
  fi
  if ! can_install; then
    echo "Run: sudo apt-get update && sudo apt-get install -y --no-install-recommends ${packages[*]}" >&2
    exit 1
  fi
  install "${packages[@]}" || exit 1
}

install_optional() {
  packages=()
  reasons=()
  note_missing "${optional[@]}"
  ((${#packages[@]})) || return 0
  # A machine without a network waits for no more than this.
  if can_install && install "${packages[@]}" -o Acquire::Retries=0 -o Acquire::http::Timeout=10; then return 0; fi
  echo "Weft does without what this machine lacks: ${reasons[*]} (Debian: ${packages[*]})" >&2
}

# What drives the browser, from npm, into a folder that git ignores.
install_browser_driver() {
  local folder version=24.43.1
  folder=$(dirname "$0")/../build/web
  [[ -e $folder/node_modules/puppeteer-core/package.json ]] && return 0
  mkdir -p "$folder"
  command -v npm >/dev/null && npm install --prefix "$folder" --no-save --no-audit --no-fund --silent \
    --fetch-retries=0 "puppeteer-core@$version" >/dev/null 2>&1 && return 0
  echo "The page of reports is not tested here: npm cannot install puppeteer-core" >&2
}

install_required
install_optional
if $with_web; then install_browser_driver; fi
