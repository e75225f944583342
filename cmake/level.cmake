# SPDX-License-Identifier: Apache-2.0
#
# gp_level(NAME FOLDER... LINKS LIBRARY... [PRIVATE LIBRARY...]): the static library gp_NAME of all C files in the
# folders, linked to exactly those libraries; those that are levels stand before it. Who links to the level may use what
# it LINKS to, but not what is PRIVATE. tests/layers.sh reads the same words from CMakeLists.txt.
#
# SIMD files are named *_avx2.c and *_avx512.c and are only entered after a check of the processor.

set(gp_avx2_flags -mavx2 -mbmi -mbmi2 -mfma -mf16c -mlzcnt -mpopcnt)
set(gp_avx512_flags ${gp_avx2_flags} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprfchw -mprefer-vector-width=512)
set(gp_levels "" CACHE INTERNAL "levels that gp_level has made, for the link checks in tests/CMakeLists.txt")

function(gp_simd_flags)
  foreach(source ${ARGN})
    if(source MATCHES "_avx2\\.c$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${gp_avx2_flags}")
    elseif(source MATCHES "_avx512\\.c$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${gp_avx512_flags}")
      if(source MATCHES "bf16_avx512\\.c$")
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS "-mavx512bf16")
      endif()
      # clang needs three minutes for this file under instrumentation; it sees no byte of a peer.
      if(GP_FUZZ AND source MATCHES "winograd_avx512\\.c$")
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS "-fno-sanitize=all;-fno-sanitize=fuzzer-no-link")
      endif()
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
  list(FILTER level_sources EXCLUDE REGEX "/(gpclient|gpserverd)\\.c$")
  gp_simd_flags(${level_sources})
  add_library(gp_${name} STATIC ${level_sources})
  target_link_libraries(gp_${name} PUBLIC gp_flags ${level_LINKS} PRIVATE ${level_PRIVATE})
  set(gp_levels ${gp_levels} ${name} CACHE INTERNAL "")
endmacro()
