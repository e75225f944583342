# SPDX-License-Identifier: Apache-2.0
#
# gp_level(NAME FOLDER... LINKS LIBRARY... [PRIVATE LIBRARY...]): the static library gp_NAME of all C files in the
# folders, linked to exactly those libraries; those that are levels stand before it. Who links to the level may use what
# it LINKS to, but not what is PRIVATE. tests/layers.sh reads the same words from CMakeLists.txt.
#
# SIMD files are named *_avx2.c, *_avx512.c and *_neon.c and are only entered after a check of the processor. Those of other
# processors are left out, as is kernels/cpu/onednn where there is no oneDNN (gp_onednn). On ARM64 the AVX2 files of
# kernels/loops are compiled for NEON, by way of SIMDe where that is installed (kernels/loops/avx2.h).

set(gp_avx2_flags -mavx2 -mbmi -mbmi2 -mfma -mf16c -mlzcnt -mpopcnt)
set(gp_avx512_flags ${gp_avx2_flags} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprfchw -mprefer-vector-width=512)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(gp_absent "_neon\\.c$")
else()
  set(gp_avx2_flags)
  set(gp_absent "_avx512\\.c$|/cpu/math/.*_avx2\\.c$")
  find_path(GP_SIMDE simde/x86/avx2.h DOC "SIMDe's headers: the folder that has simde/")
  mark_as_advanced(GP_SIMDE)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    string(APPEND gp_absent "|_avx2\\.c$|_neon\\.c$")
  elseif(NOT GP_SIMDE)
    message(STATUS "SIMDe is not installed: the loops of codecs are plain C")
    string(APPEND gp_absent "|_avx2\\.c$")
  else()
    target_compile_definitions(gp_flags INTERFACE GP_SIMDE)
  endif()
endif()
if(NOT gp_onednn)
  string(APPEND gp_absent "|/onednn/[^/]*\\.c$")
endif()
set(gp_levels "" CACHE INTERNAL "levels that gp_level has made, for the link checks in tests/CMakeLists.txt")

function(gp_simd_flags)
  foreach(source ${ARGN})
    if(source MATCHES "_avx2\\.c$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${gp_avx2_flags}")
    elseif(source MATCHES "_avx512\\.c$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${gp_avx512_flags}")
      if(source MATCHES "bf16_avx512\\.c$")
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS "-mavx512bf16")
      elseif(source MATCHES "vbmi_avx512\\.c$")
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS "-mavx512vbmi;-mavx512vbmi2;-mavx512bitalg")
      endif()
    elseif(source MATCHES "bf16_neon\\.c$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+bf16")
    endif()
    # clang needs three minutes for these files under instrumentation; they see no byte of a peer.
    if(GP_FUZZ AND source MATCHES "winograd_(avx2|avx512|neon)\\.c$")
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS "-fno-sanitize=all;-fno-sanitize=fuzzer-no-link")
    endif()
  endforeach()
endfunction()

macro(gp_level name)
  cmake_parse_arguments(level "" "" "LINKS;PRIVATE" ${ARGN})
  foreach(library ${level_LINKS} ${level_PRIVATE})
    if(library MATCHES "^gp_" AND NOT TARGET ${library})
      message(FATAL_ERROR "gp_${name} links to ${library}, which does not stand before it")
    endif()
  endforeach()
  set(level_globs ${level_UNPARSED_ARGUMENTS})
  list(TRANSFORM level_globs APPEND "/*.c")
  file(GLOB level_sources CONFIGURE_DEPENDS ${level_globs})
  list(FILTER level_sources EXCLUDE REGEX "/(gpclient|gpserverd)\\.c$|${gp_absent}")
  gp_simd_flags(${level_sources})
  add_library(gp_${name} STATIC ${level_sources})
  target_link_libraries(gp_${name} PUBLIC gp_flags ${level_LINKS} PRIVATE ${level_PRIVATE})
  set(gp_levels ${gp_levels} ${name} CACHE INTERNAL "")
endmacro()
