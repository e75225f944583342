# SPDX-License-Identifier: Apache-2.0
#
# gp_cuda_level(NAME FOLDER... LINKS LIBRARY...): gp_level with the kernels in the folders, as GP_CUDA says. It defines
# GP_CUDA_DEVICE where there is a device (real or emulated), and makes an empty library where there is none.
#
#   *.c     both   plans, codecs, buffers: C over rt.h and blas.h
#   k_*.cu  both   kernels and their launchers, over gpk.h
#   *.cu    nvcc   the runtime and cuBLAS
#   *.cc    g++    the same on the host

# Turing to Blackwell: machine code for the common data centre cards, others compile the nearest virtual one at load time.
set(gp_cuda_architectures 75-virtual 80-real 90)
if(DEFINED ENV{CUDAARCHS})
  set(gp_cuda_architectures $ENV{CUDAARCHS})
endif()
include(${CMAKE_CURRENT_LIST_DIR}/find_nvcc.cmake)
if(GP_CUDA STREQUAL "auto")
  gp_probe_cuda(cuda_works)
  set(gp_cuda off)
  if(cuda_works)
    set(gp_cuda on)
  endif()
elseif(GP_CUDA MATCHES "^(on|off|emulated)$")
  set(gp_cuda ${GP_CUDA})
else()
  message(FATAL_ERROR "GP_CUDA is '${GP_CUDA}'; it can be on, off, auto or emulated")
endif()
message(STATUS "CUDA device: ${gp_cuda}")
set(gp_cuda_device ${gp_cuda} CACHE INTERNAL "what GP_CUDA came to: on, off or emulated; deploy/bundle.sh reads it")
if(gp_cuda STREQUAL "off")
  function(gp_cuda_level name)
    add_library(gp_${name} INTERFACE)
  endfunction()
  return()
endif()

add_library(gp_gpu INTERFACE) # how kernels are compiled
target_include_directories(gp_gpu INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
target_compile_definitions(gp_gpu INTERFACE GP_VERSION="${PROJECT_VERSION}" _GNU_SOURCE)
if(GP_FAULTS)
  target_compile_definitions(gp_gpu INTERFACE GP_FAULTS)
endif()
if(gp_cuda STREQUAL "emulated")
  enable_language(CXX)
  set(gp_cuda_kinds k_*.cu *.cc)
  set(gp_cuda_links ${gp_onednn} stdc++)
  target_compile_options(gp_gpu INTERFACE -ffp-contract=off -fvisibility=hidden -Wall -Wextra -Wno-unused-function
    ${gp_no_guesses})
  if(GP_WERROR)
    target_compile_options(gp_gpu INTERFACE -Werror)
  endif()
  if(gp_onednn)
    target_include_directories(gp_gpu INTERFACE $<TARGET_PROPERTY:DNNL::dnnl,INTERFACE_INCLUDE_DIRECTORIES>)
    target_compile_definitions(gp_gpu INTERFACE GP_ONEDNN)
  endif()
  if(GP_SANITIZE)
    # -O2 in place of a preset's -O1: emulated kernels are most of the work of the sanitizers' tests.
    target_compile_options(gp_gpu INTERFACE -O2 -fsanitize=${GP_SANITIZE} -fno-omit-frame-pointer
      -fno-sanitize-recover=all)
  endif()
else()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES ${gp_cuda_architectures})
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  set(gp_cuda_toolkit "${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}" CACHE INTERNAL "tests/gpu.sh reads it")
  set(gp_cuda_libraries ${CUDAToolkit_LIBRARY_DIR} CACHE INTERNAL "where cuBLAS is; deploy/bundle.sh reads it")
  set(gp_cuda_kinds *.cu)
  set(gp_cuda_links CUDA::cudart_static ${CMAKE_DL_LIBS} stdc++) # cuBLAS is opened when it is needed: cublas.h
  target_compile_options(gp_gpu INTERFACE -Xcompiler=-Wall,-Wextra,-Wno-unused-function,-fvisibility=hidden)
  if(GP_WERROR)
    target_compile_options(gp_gpu INTERFACE --Werror=all-warnings)
  endif()
endif()

# The kernels are compiled without gp_flags, whose warnings are those of C.
function(gp_cuda_level name)
  gp_level(${name} ${ARGN})
  target_compile_definitions(gp_${name} PUBLIC GP_CUDA_DEVICE)
  set(globs)
  foreach(folder ${level_UNPARSED_ARGUMENTS})
    foreach(kind ${gp_cuda_kinds})
      list(APPEND globs ${folder}/${kind})
    endforeach()
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${globs})
  add_library(gp_${name}_gpu OBJECT ${sources})
  target_link_libraries(gp_${name}_gpu PRIVATE gp_gpu)
  set_target_properties(gp_${name}_gpu PROPERTIES CXX_STANDARD 17 CXX_EXTENSIONS ON
    CUDA_STANDARD 17 CUDA_SEPARABLE_COMPILATION OFF)
  foreach(source ${sources})
    if(gp_cuda STREQUAL "emulated" AND source MATCHES "\\.cu$")
      set_source_files_properties(${source} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++")
    elseif(source MATCHES "/k_codec_") # as the portable codec loops: no contraction (gpk.h)
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "--fmad=false")
    endif()
  endforeach()
  target_sources(gp_${name} PRIVATE $<TARGET_OBJECTS:gp_${name}_gpu>)
  target_link_libraries(gp_${name} PUBLIC ${gp_cuda_links})
endfunction()
