# Finds NCCL: the system's, the CUDA toolkit's, or the one inside PyTorch's Python packages (nvidia/nccl).
# Sets WEFT_NCCL_INCLUDE and WEFT_NCCL_LIBRARY; the latter is empty where there is none, or WEFT_CUDA is off.
set(WEFT_NCCL_LIBRARY "")
if(NOT WEFT_CUDA)
  return()
endif()

find_package(CUDAToolkit REQUIRED)
set(nccl_hints ${CUDAToolkit_LIBRARY_ROOT} ${CUDAToolkit_TARGET_DIR} ${CUDAToolkit_INCLUDE_DIRS}/..)
execute_process(COMMAND ${Python3_EXECUTABLE} -c
                        "import importlib.util as u; print(*u.find_spec('nvidia.nccl').submodule_search_locations, sep=';')"
                OUTPUT_VARIABLE nccl_package ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
# The header and the library of one place: their versions must agree.
foreach(place ${nccl_package} ${nccl_hints} /usr)
  find_path(WEFT_NCCL_HEADERS nccl.h PATHS ${place}/include NO_DEFAULT_PATH)
  # The Python package has no link without a version.
  find_library(WEFT_NCCL_FILE NAMES nccl libnccl.so.2 PATHS ${place}/lib ${place}/lib64
               ${place}/lib/${CMAKE_LIBRARY_ARCHITECTURE} NO_DEFAULT_PATH)
  if(WEFT_NCCL_HEADERS AND WEFT_NCCL_FILE)
    break()
  endif()
  unset(WEFT_NCCL_HEADERS CACHE)
  unset(WEFT_NCCL_FILE CACHE)
endforeach()
mark_as_advanced(WEFT_NCCL_HEADERS WEFT_NCCL_FILE)

if(WEFT_NCCL_HEADERS AND WEFT_NCCL_FILE)
  set(WEFT_NCCL_INCLUDE ${WEFT_NCCL_HEADERS})
  set(WEFT_NCCL_LIBRARY ${WEFT_NCCL_FILE})
  message(STATUS "NCCL: ${WEFT_NCCL_LIBRARY}")
else()
  message(STATUS "NCCL: none found, so no collectives between GPUs")
endif()
