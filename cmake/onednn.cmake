# SPDX-License-Identifier: Apache-2.0
#
# oneDNN, as GP_ONEDNN says: gp_onednn is the library that those who use it link to, which says so to their sources (the
# definition GP_ONEDNN), or nothing. Without it every operation runs on own loops.

if(NOT GP_ONEDNN MATCHES "^(on|off|auto)$")
  message(FATAL_ERROR "GP_ONEDNN is '${GP_ONEDNN}'; it can be on, off or auto")
endif()
set(gp_onednn)
if(GP_ONEDNN STREQUAL "on")
  find_package(dnnl 2.6 CONFIG REQUIRED)
elseif(GP_ONEDNN STREQUAL "auto")
  find_package(dnnl 2.6 CONFIG QUIET)
endif()
if(TARGET DNNL::dnnl AND NOT GP_ONEDNN STREQUAL "off")
  add_library(gp_onednn INTERFACE)
  target_link_libraries(gp_onednn INTERFACE DNNL::dnnl)
  target_compile_definitions(gp_onednn INTERFACE GP_ONEDNN)
  set(gp_onednn gp_onednn)
  message(STATUS "oneDNN: ${dnnl_VERSION}")
else()
  message(STATUS "oneDNN: none")
endif()
