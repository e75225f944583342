# SPDX-License-Identifier: Apache-2.0
#
# Manual pages and completions of the command line, made from what the programs that were just built say of their options, and
# what else is installed beside them. A cross build that has no CMAKE_CROSSCOMPILING_EMULATOR cannot run them: it installs none.
include(GNUInstallDirs)
if(NOT CMAKE_CROSSCOMPILING)
  set(gp_share ${CMAKE_BINARY_DIR}/share)
  file(GLOB gp_share_sources CONFIGURE_DEPENDS deploy/man/* deploy/completion/*)
  add_custom_command(OUTPUT ${gp_share}/made
    COMMAND sh ${CMAKE_SOURCE_DIR}/deploy/man/make.sh ${CMAKE_BINARY_DIR} ${gp_share} $<$<BOOL:${GP_PACKAGE}>:gz>
    COMMAND ${CMAKE_COMMAND} -E touch ${gp_share}/made
    DEPENDS gpclient gpserverd ${gp_share_sources} COMMENT "Manual pages and completions" COMMAND_EXPAND_LISTS VERBATIM)
  add_custom_target(gp_pages ALL DEPENDS ${gp_share}/made)

  # gp_install_pages(COMPONENT PROGRAM PATTERN): the pages that fit the pattern, and the program's completions.
  function(gp_install_pages component program pattern)
    install(DIRECTORY ${gp_share}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT ${component} FILES_MATCHING REGEX ${pattern})
    install(FILES ${gp_share}/bash-completion/completions/${program}
      DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT ${component})
    install(FILES ${gp_share}/zsh/site-functions/_${program} DESTINATION ${GP_ZSH_COMPLETIONS} COMPONENT ${component})
    install(FILES ${gp_share}/fish/vendor_completions.d/${program}.fish
      DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT ${component})
  endfunction()
  set(GP_ZSH_COMPLETIONS ${CMAKE_INSTALL_DATADIR}/zsh/site-functions CACHE STRING "Where zsh looks for completions")
  mark_as_advanced(GP_ZSH_COMPLETIONS)
  gp_install_pages(client gpclient "/(gpclient[^/]*\\.1|gpsplit-files\\.5)(\\.gz)?$")
  gp_install_pages(server gpserverd "/gpserverd[^/]*\\.[58](\\.gz)?$")
endif()
