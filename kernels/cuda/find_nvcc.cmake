# SPDX-License-Identifier: Apache-2.0
#
# Where nvcc is, and whether it makes programs: gp_probe_cuda(VARIABLE). A toolkit that is broken, or too old, must not end
# a configuration with GP_CUDA=auto, which would be the end of a build that can do without. Included by cuda.cmake.

if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND GP_CUDA MATCHES "^(on|auto)$")
  find_program(GP_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(GP_NVCC)
  if(GP_NVCC)
    set(CMAKE_CUDA_COMPILER ${GP_NVCC})
  endif()
endif()

# Makes a program as the build would; a toolkit that cannot is the same as none, but is told.
function(gp_probe_cuda works)
  set(compiler ${CMAKE_CUDA_COMPILER})
  if(NOT compiler)
    set(compiler $ENV{CUDACXX})
  endif()
  if(NOT compiler)
    set(${works} FALSE PARENT_SCOPE)
    return()
  endif()
  if(GP_CUDA_PROBED STREQUAL "${compiler} works")
    set(${works} TRUE PARENT_SCOPE)
    return()
  endif()
  set(probe ${CMAKE_BINARY_DIR}/CMakeFiles/probe_cuda)
  file(WRITE ${probe}.cu [[
#include <cublas_v2.h>
#include <cuda_bf16.h>
#if CUBLAS_VER_MAJOR < 12
#error "CUDA 12 or newer is needed"
#endif
__global__ void kernel(cublasHandle_t *) {}
int main() { kernel<<<1, 1>>>(nullptr); return cudaGetLastError() != cudaSuccess; }
]])
  execute_process(COMMAND ${compiler} -std=c++17 -arch=compute_75 -o ${probe} ${probe}.cu
    RESULT_VARIABLE status OUTPUT_VARIABLE words ERROR_VARIABLE words)
  if(status STREQUAL "0")
    set(GP_CUDA_PROBED "${compiler} works" CACHE INTERNAL "the CUDA compiler that has been tried")
    set(${works} TRUE PARENT_SCOPE)
  else()
    message(WARNING "${compiler} is there but makes no program, so this build has no CUDA device (${status}):\n${words}")
    set(${works} FALSE PARENT_SCOPE)
  endif()
endfunction()
