# Finds ATen's headers and libraries: Debian's libtorch-dev, or the ones inside a Python package of PyTorch.
# Sets WEFT_TORCH_INCLUDE and WEFT_TORCH_LIBRARIES; the latter is empty where there is no libtorch.
#
# Not find_package(Torch): in a PyTorch built for CUDA it stops the configuration where the toolkit does not fit.
option(WEFT_KERNELS "Build the tensor kernels where libtorch is found" ON)
set(WEFT_TORCH_LIBRARIES "")
if(NOT WEFT_KERNELS)
  return()
endif()

function(weft_look_for_torch)
  find_path(WEFT_TORCH_HEADERS ATen/ATen.h HINTS ${ARGN} PATH_SUFFIXES include)
  find_library(WEFT_TORCH_CPU torch_cpu HINTS ${ARGN} PATH_SUFFIXES lib)
  find_library(WEFT_TORCH_C10 c10 HINTS ${ARGN} PATH_SUFFIXES lib)
endfunction()

weft_look_for_torch()
if(NOT WEFT_TORCH_HEADERS OR NOT WEFT_TORCH_CPU)
  find_package(Python3 QUIET COMPONENTS Interpreter)
  if(Python3_FOUND)
    # Where the package lies, without the seconds that importing it takes.
    execute_process(COMMAND ${Python3_EXECUTABLE} -c
                            "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
                    OUTPUT_VARIABLE torch_package ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(torch_package)
      weft_look_for_torch(${torch_package})
    endif()
  endif()
endif()
mark_as_advanced(WEFT_TORCH_HEADERS WEFT_TORCH_CPU WEFT_TORCH_C10)

if(WEFT_TORCH_HEADERS AND WEFT_TORCH_CPU AND WEFT_TORCH_C10)
  set(WEFT_TORCH_INCLUDE ${WEFT_TORCH_HEADERS} ${WEFT_TORCH_HEADERS}/torch/csrc/api/include)
  set(WEFT_TORCH_LIBRARIES ${WEFT_TORCH_CPU} ${WEFT_TORCH_C10})
  message(STATUS "libtorch: ${WEFT_TORCH_CPU}")
else()
  message(STATUS "libtorch: none found, so no kernels")
endif()
