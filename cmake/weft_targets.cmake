# The three kinds of targets in this project: one static library per folder of src/,
# one test executable per folder, and the flags that all of them share.

find_package(Python3 REQUIRED COMPONENTS Interpreter)

add_library(weft_flags INTERFACE)
target_compile_options(weft_flags INTERFACE -Wall -Wextra -Wconversion -Wshadow
                       # The same simulated times on every machine: no fused multiply-add where one has it.
                       -ffp-contract=off
                       # g++ 12 warns falsely inside std::string's operator+ (GCC bug 105329).
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
                       # And, with precompiled headers, about the memcpy inside std::string.
                       $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow>
                       $<$<BOOL:${WEFT_WERROR}>:-Werror>)
# Tests are compiled for little time, not for speed, and without the checks for undefined behaviour, which cost the compiler
# most: those watch the libraries. Only tests that search by themselves (WEFT_SEARCHES) are optimized, and not with
# sanitizers, where optimizing a test takes as long again as compiling it.
add_library(weft_test_flags INTERFACE)
get_target_property(weft_warnings weft_flags INTERFACE_COMPILE_OPTIONS)
target_compile_options(weft_test_flags INTERFACE ${weft_warnings}
                       $<IF:$<BOOL:$<TARGET_PROPERTY:WEFT_SEARCHES>>,-O1,-O0>)
if(WEFT_SANITIZE)
  string(REPLACE ",undefined" "" test_sanitizers ${WEFT_SANITIZE})
  target_compile_options(weft_flags INTERFACE -fsanitize=${WEFT_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_compile_options(weft_test_flags INTERFACE -fsanitize=${test_sanitizers} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(weft_flags INTERFACE -fsanitize=${WEFT_SANITIZE})
  target_link_options(weft_test_flags INTERFACE -fsanitize=${WEFT_SANITIZE})
endif()
# Every pointer that is followed is checked to be neither null nor misaligned nor too short an object's, which is a quarter
# of the compiler's work. The address sanitizer sees the first and the last by itself; the second takes a cast, and
# tests/layers_test.py sees that only these folders have any.
set(weft_folders_with_casts kernels comm exec)
add_library(weft_no_casts INTERFACE)
if(WEFT_SANITIZE MATCHES "address,undefined")
  target_compile_options(weft_no_casts INTERFACE -fno-sanitize=null,alignment,object-size)
endif()

# Precompiled headers: what nearly every source includes anyway. Every file still names what it needs, and `make tidy`
# builds without them. ccache wants -fpch-preprocess and a little sloppiness (tools/configure.sh).
option(WEFT_PCH "Precompile the headers that most sources share" ON)
set(weft_pch_headers <algorithm> <cstdint> <functional> <map> <memory> <optional> <string> <string_view> <vector>
    <fmt/format.h>)
set(weft_pch_test_headers ${weft_pch_headers} <gtest/gtest.h>)

# One precompiled header per kind of target, made by the first that asks for it.
function(weft_precompile target kind headers)
  if(NOT WEFT_PCH)
    return()
  endif()
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  get_property(owner GLOBAL PROPERTY WEFT_PCH_${kind})
  if(owner)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  else()
    target_precompile_headers(${target} PRIVATE ${headers})
    set_property(GLOBAL PROPERTY WEFT_PCH_${kind} ${target})
  endif()
endfunction()

# Batches: sources that are compiled as one, because each by itself takes most of its time for headers that the others read
# too. cmake/batches.py finds which can go together. `all` is for whole builds, of which it saves half (`make` asks for it).
# `tests` leaves libraries as they are, so that a changed source takes no more than its own time; `none` is for clang-tidy.
set(WEFT_BATCHES tests CACHE STRING "What is compiled in batches: none, tests or all")
set(weft_sources_in_batch 8)
function(weft_batch target sources)
  execute_process(COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/cmake/batches.py ${PROJECT_SOURCE_DIR}/src
                          ${weft_sources_in_batch} ${CMAKE_CURRENT_SOURCE_DIR} ${sources}
                  OUTPUT_VARIABLE batches COMMAND_ERROR_IS_FATAL ANY)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # g++ takes sources that are included for headers, in which an unnamed namespace would be a mistake.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  set(number 0)
  foreach(batch ${batches})
    string(REPLACE "," ";" batch "${batch}")
    math(EXPR number "${number} + 1")
    list(LENGTH batch length)
    if(length GREATER 1)
      set_source_files_properties(${batch} PROPERTIES UNITY_GROUP batch_${number})
    endif()
  endforeach()
endfunction()

# Folders whose own code takes no time worth speaking of: the compiler saves its time there.
set(weft_quick_folders app study calibrate)
# The same, under sanitizers: there optimizing what is made of JSON takes as long again as compiling it.
set(weft_quick_folders_sanitized exec io)

# What src/embed makes a shared library of: code that may lie anywhere.
set(weft_embedded_folders base cluster collective comm)

# weft_library(NAME SOURCES a.cpp ... DEPENDS base ... [LINK fmt::fmt ...])
function(weft_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LINK" ${ARGN})
  add_library(weft_${name} STATIC ${ARG_SOURCES})
  add_library(weft::${name} ALIAS weft_${name})
  target_include_directories(weft_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/weft>)
  list(TRANSFORM ARG_DEPENDS PREPEND weft_)
  target_link_libraries(weft_${name} PUBLIC ${ARG_DEPENDS} ${ARG_LINK}
                        PRIVATE $<BUILD_INTERFACE:weft_flags>)
  if(NOT name IN_LIST weft_folders_with_casts)
    target_link_libraries(weft_${name} PRIVATE $<BUILD_INTERFACE:weft_no_casts>)  # behind the flags it takes back
  endif()
  set(kind LIBRARY)
  if(name IN_LIST weft_quick_folders)
    target_compile_options(weft_${name} PRIVATE -O1)
    set(kind QUICK_LIBRARY)  # g++ takes no precompiled header that was made with other optimizations
  elseif(WEFT_SANITIZE AND name IN_LIST weft_quick_folders_sanitized)
    target_compile_options(weft_${name} PRIVATE -O0)
    set(kind UNOPTIMIZED_LIBRARY)
  elseif(name IN_LIST weft_embedded_folders AND NOT WEFT_SANITIZE)
    set_target_properties(weft_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_compile_options(weft_${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fno-semantic-interposition>)
    set(kind EMBEDDED_LIBRARY)
  endif()
  if(WEFT_BATCHES STREQUAL "all")
    weft_batch(weft_${name} "${ARG_SOURCES}")
  endif()
  set_target_properties(weft_${name} PROPERTIES EXPORT_NAME ${name})
  set_property(GLOBAL APPEND PROPERTY WEFT_LIBRARIES weft_${name})
  weft_precompile(weft_${name} ${kind} "${weft_pch_headers}")
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/finished/${name}.cmake
       CONTENT "weft_finished_library(${name} $<TARGET_FILE:weft_${name}> ${ARG_DEPENDS} ${ARG_LINK})\n")
endfunction()

# weft_finished_library(NAME FILE what it links ...): a library that another build folder has made, without sanitizers.
function(weft_finished_library name file)
  add_library(weft_${name} STATIC IMPORTED GLOBAL)
  set_target_properties(weft_${name} PROPERTIES IMPORTED_LOCATION ${file})
  target_include_directories(weft_${name} INTERFACE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(weft_${name} INTERFACE ${ARGN})
endfunction()

# weft_test(FOLDER SOURCES a_test.cpp ... [LABELS fast] [DEPENDS other folders] [PRECOMPILE <header> ...] [SHARDS 2] [SEARCHES])
# One executable and one process for all test cases of a folder: starting a process takes longer than most of them. What failed
# is named at the end of its output. PRECOMPILE: a precompiled header of its own, with these headers too. SHARDS: so many
# processes, each with its share of the test cases, where they take long enough to keep several cores busy. SEARCHES: the
# oracles of these tests try so many cases that optimizing them pays.
function(weft_test folder)
  if(NOT BUILD_TESTING)
    return()
  endif()
  cmake_parse_arguments(ARG "SEARCHES" "SHARDS" "SOURCES;LABELS;DEPENDS;PRECOMPILE" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS fast)
  endif()
  if(NOT ARG_SHARDS)
    set(ARG_SHARDS 1)
  endif()
  list(TRANSFORM ARG_DEPENDS PREPEND weft_)
  add_executable(${folder}_test ${ARG_SOURCES})
  target_link_libraries(${folder}_test PRIVATE weft_${folder} ${ARG_DEPENDS} GTest::gtest_main weft_test_flags)
  target_compile_definitions(${folder}_test PRIVATE WEFT_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(ARG_PRECOMPILE)
    weft_precompile(${folder}_test TEST_OF_${folder} "${weft_pch_test_headers};${ARG_PRECOMPILE}")
  elseif(ARG_SEARCHES AND NOT WEFT_SANITIZE)
    set_property(TARGET ${folder}_test PROPERTY WEFT_SEARCHES ON)
    weft_precompile(${folder}_test SEARCHING_TEST "${weft_pch_test_headers}")
  else()
    weft_precompile(${folder}_test TEST "${weft_pch_test_headers}")
  endif()
  if(NOT WEFT_BATCHES STREQUAL "none")
    weft_batch(${folder}_test "${ARG_SOURCES}")
  endif()
  set_property(TARGET ${folder}_test PROPERTY WEFT_SHARDS ${ARG_SHARDS})  # tests/sanitized.cmake asks for it
  list(LENGTH ARG_SOURCES cost)  # many sources take long: they begin early
  foreach(shard RANGE 1 ${ARG_SHARDS})
    set(name ${folder})
    if(ARG_SHARDS GREATER 1)
      set(name ${folder}_${shard})
    endif()
    math(EXPR index "${shard} - 1")
    add_test(NAME ${name} COMMAND ${folder}_test)
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 600 COST ${cost}
                         ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()
