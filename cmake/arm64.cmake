# SPDX-License-Identifier: Apache-2.0
#
# Building for ARM64 on another machine: Debian's cross compiler, libraries of ARM64 beside the machine's own (multiarch),
# tools of the machine. `deploy/deps.sh --arch arm64` installs all of them. Tests run under qemu.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_PACKAGE_PREFER_CONFIG OFF)

# What pkg-config may find: libraries of ARM64 alone.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
set(ENV{PKG_CONFIG_PATH} "")

find_program(GP_QEMU NAMES qemu-aarch64-static qemu-aarch64 DOC "runs programs for ARM64")
mark_as_advanced(GP_QEMU)
if(GP_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${GP_QEMU})
endif()
