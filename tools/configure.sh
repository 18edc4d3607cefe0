#!/usr/bin/env bash
# Configures one CMake preset: tools/configure.sh PRESET [more arguments for cmake].
# The presets ask for Ninja; this is where a machine without Ninja or ccache is served all the same.
set -euo pipefail

preset=$1
shift
cd "$(dirname "$0")/.."
build=build/$preset
mkdir -p "$build"

arguments=(--preset "$preset")
configured=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$build/CMakeCache.txt" 2>/dev/null || true)
if ! command -v ninja >/dev/null; then
  arguments+=(-G "Unix Makefiles")
  # A folder made for Ninja cannot be built here any more.
  if [[ $configured == Ninja ]]; then arguments+=(--fresh); fi
elif [[ -n $configured ]]; then
  arguments+=(-G "$configured")
fi
if command -v ccache >/dev/null; then
  # Precompiled headers are cached only where ccache may ignore what it cannot see in them.
  arguments+=("-DCMAKE_CXX_COMPILER_LAUNCHER=env;CCACHE_SLOPPINESS=pch_defines,time_macros;ccache")
else
  arguments+=(-UCMAKE_CXX_COMPILER_LAUNCHER)
fi

# Errors and warnings go to stderr and are shown; the rest is kept for the curious.
if ! cmake "${arguments[@]}" "$@" >"$build/configure.log"; then
  echo "The rest of CMake's output is in $build/configure.log" >&2
  exit 1
fi
