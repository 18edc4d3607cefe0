# The three kinds of targets in this project: one static library per folder of src/,
# one test executable per folder, and the flags that all of them share.

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
# most: those watch the libraries.
add_library(weft_test_flags INTERFACE)
get_target_property(weft_warnings weft_flags INTERFACE_COMPILE_OPTIONS)
target_compile_options(weft_test_flags INTERFACE ${weft_warnings} -O1)
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
  set_target_properties(weft_${name} PROPERTIES EXPORT_NAME ${name})
  set_property(GLOBAL APPEND PROPERTY WEFT_LIBRARIES weft_${name})
  weft_precompile(weft_${name} LIBRARY "${weft_pch_headers}")
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

# weft_test(FOLDER SOURCES a_test.cpp ... [LABELS fast] [DEPENDS other folders] [PRECOMPILE <header> ...] [ONE_PROCESS])
# PRECOMPILE: a precompiled header of its own, with these headers too.
# ONE_PROCESS: one test for ctest, where starting the executable takes longer than its test cases.
function(weft_test folder)
  if(NOT BUILD_TESTING)
    return()
  endif()
  cmake_parse_arguments(ARG "ONE_PROCESS" "" "SOURCES;LABELS;DEPENDS;PRECOMPILE" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS fast)
  endif()
  list(TRANSFORM ARG_DEPENDS PREPEND weft_)
  add_executable(${folder}_test ${ARG_SOURCES})
  target_link_libraries(${folder}_test PRIVATE weft_${folder} ${ARG_DEPENDS} GTest::gtest_main weft_test_flags)
  target_compile_definitions(${folder}_test PRIVATE WEFT_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(ARG_PRECOMPILE)
    weft_precompile(${folder}_test TEST_OF_${folder} "${weft_pch_test_headers};${ARG_PRECOMPILE}")
  else()
    weft_precompile(${folder}_test TEST "${weft_pch_test_headers}")
  endif()
  if(ARG_ONE_PROCESS)
    add_test(NAME ${folder} COMMAND ${folder}_test --gtest_brief=1)
    set_tests_properties(${folder} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 300)
    return()
  endif()
  gtest_discover_tests(${folder}_test DISCOVERY_TIMEOUT 60 PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 120)
endfunction()

# weft_test_batches(FOLDER "a_test.cpp b_test.cpp ..." ...): these sources are compiled as one, because each by itself takes
# most of its time for what it shares with the others: half the compiler's time. Sources of a batch must not give two things
# the same name, even in their unnamed namespaces; a source in no batch is compiled by itself.
option(WEFT_BATCH_TESTS "Compile the batches of test sources at once" ON)
function(weft_test_batches folder)
  if(NOT BUILD_TESTING)
    return()
  endif()
  set_target_properties(${folder}_test PROPERTIES UNITY_BUILD ${WEFT_BATCH_TESTS} UNITY_BUILD_MODE GROUP)
  set(number 0)
  foreach(batch ${ARGN})
    math(EXPR number "${number} + 1")
    separate_arguments(sources UNIX_COMMAND "${batch}")
    set_source_files_properties(${sources} PROPERTIES UNITY_GROUP batch_${number})
  endforeach()
endfunction()
