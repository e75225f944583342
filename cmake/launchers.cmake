# SPDX-License-Identifier: Apache-2.0
#
# gp_launchers(TARGET...): for scripts that run programs of another processor by their paths. The folder gp_programs, which
# scripts get as their build folder, has for each program one of its name that starts it under CMAKE_CROSSCOMPILING_EMULATOR.
# Where programs run as they are, gp_programs is the build folder.

set(gp_programs ${CMAKE_BINARY_DIR})
if(CMAKE_CROSSCOMPILING)
  set(gp_programs ${CMAKE_BINARY_DIR}/launchers)
  file(MAKE_DIRECTORY ${gp_programs})
  file(CREATE_LINK ${CMAKE_BINARY_DIR}/CMakeCache.txt ${gp_programs}/CMakeCache.txt SYMBOLIC)
endif()

# An emulated program cannot start itself again to set what OpenMP does while it waits (common/base/threads.h).
function(gp_launchers)
  if(NOT CMAKE_CROSSCOMPILING)
    return()
  endif()
  foreach(target ${ARGN})
    get_target_property(folder ${target} BINARY_DIR)
    file(RELATIVE_PATH below ${CMAKE_BINARY_DIR} ${folder})
    file(GENERATE OUTPUT ${gp_programs}/${below}/${target} CONTENT "#!/bin/sh
OMP_WAIT_POLICY=passive exec ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${target}> \"$@\"
" FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  endforeach()
endfunction()
